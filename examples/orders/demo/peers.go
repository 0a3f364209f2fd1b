package demo

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/examples/orders/database"
	"github.com/postrider/postrider/internal/pgserver"
)

// peers are the servers that the shop needs: an emulated AWS, with a proxy that
// can fail before its queues, and a database.
type peers struct {
	folder *folder
	aws    *awsemulator.Server
	// broker is what relay and services take for SQS and SNS. What the demo
	// itself wants to know of queues it asks the emulator.
	broker *awsproxy.Server
	queues *sqs.Client
	dynamo *dynamodb.Client
	server *pgserver.Server // nil unless it is the demo's own
	db     *database.Database
	url    string // of the database
	where  string // the database, for people
	kind   string // its kind, for people
}

func startPeers(ctx context.Context, o Options, f *folder) (*peers, error) {
	p := &peers{folder: f}
	if err := p.start(ctx, o); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *peers) start(ctx context.Context, o Options) (err error) {
	p.kind, p.url = "PostgreSQL", o.Postgres
	switch o.Postgres {
	case "":
		p.kind, p.url = "SQLite", "sqlite:"+p.folder.sqlite("orders")
	case "auto":
		if p.server, err = pgserver.Start(ctx, pgserver.Options{Dir: p.folder.postgres()}); err != nil {
			return err
		}
		p.url = p.server.URL("postgres")
	}
	where, err := config.ParseDatabase(p.url)
	if err != nil {
		return err
	}
	p.where = where.String()
	if p.server != nil {
		p.where = "PostgreSQL of the demo's own, " + p.where
	}
	if p.db, err = database.Open(ctx, where, ""); err != nil {
		return err
	}
	p.aws = awsemulator.Start()
	if p.broker, err = awsproxy.Start(p.aws.Endpoint, 1); err != nil {
		return err
	}
	p.queues = sqs.NewFromConfig(p.aws.Config())
	p.dynamo = dynamodb.NewFromConfig(p.aws.Config())
	return nil
}

// consumers is a client of SQS as the services have it.
func (p *peers) consumers() *sqs.Client { return sqs.NewFromConfig(awsemulator.Config(p.broker.URL)) }

// close ends what was started, and first waits for kept data to be written.
func (p *peers) close() error {
	var errs []error
	if p.broker != nil {
		p.broker.Close()
	}
	if p.aws != nil {
		if !p.folder.temporary {
			errs = append(errs, p.flush(context.Background()))
		}
		p.aws.Close()
	}
	if p.db != nil {
		errs = append(errs, p.db.Close())
	}
	if p.server != nil {
		errs = append(errs, p.server.Close())
	}
	return errors.Join(errs...)
}
