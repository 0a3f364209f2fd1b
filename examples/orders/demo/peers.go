package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/database"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/fulfilment"
	"github.com/postrider/postrider/internal/pgserver"
	"github.com/postrider/postrider/relay"
)

// peers are the servers that the shop needs: an emulated AWS and a database.
type peers struct {
	folder *folder
	aws    *awsemulator.Server
	queues *sqs.Client
	dynamo *dynamodb.Client
	server *pgserver.Server // nil unless it is the demo's own
	db     *database.Database
	where  string // the database, for people
}

func startPeers(ctx context.Context, o Options, f *folder) (*peers, error) {
	p := &peers{folder: f}
	if err := p.start(ctx, o); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *peers) start(ctx context.Context, o Options) (err error) {
	url := "sqlite:" + p.folder.sqlite()
	switch o.Postgres {
	case "":
	case "auto":
		if p.server, err = pgserver.Start(ctx, pgserver.Options{Dir: p.folder.postgres()}); err != nil {
			return err
		}
		url = p.server.URL("postgres")
	default:
		url = o.Postgres
	}
	where, err := config.ParseDatabase(url)
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
	p.queues = sqs.NewFromConfig(p.aws.Config())
	p.dynamo = dynamodb.NewFromConfig(p.aws.Config())
	return nil
}

// newRelay makes the relay as `postrider relay --to sqs://orders` does, and says
// how many shards it has to serve.
func (p *peers) newRelay(ctx context.Context, log *slog.Logger) (*relay.Relay, int, error) {
	store, err := p.db.RelayStore()
	if err != nil {
		return nil, 0, err
	}
	shards, err := store.Shards(ctx)
	if err != nil {
		return nil, 0, err
	}
	publisher, err := sqsbroker.NewPublisher(sqsbroker.PublisherConfig{Client: p.queues, Queue: fulfilment.DefaultQueue})
	if err != nil {
		return nil, 0, err
	}
	r, err := relay.New(relay.Config{
		Store:  store,
		Routes: []relay.Route{{Name: "orders", Topics: []string{event.Topic}, Publisher: publisher}},
		Logger: log,
	})
	if err != nil {
		return nil, 0, fmt.Errorf("set up the relay: %w", err)
	}
	return r, shards, nil
}

func (p *peers) newConsumer(log *slog.Logger) (*sqsbroker.Consumer, error) {
	return sqsbroker.NewConsumer(sqsbroker.ConsumerConfig{Client: p.queues, Queue: fulfilment.DefaultQueue, Logger: log})
}

// close ends what was started, and first waits for kept data to be written.
func (p *peers) close() error {
	var errs []error
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
