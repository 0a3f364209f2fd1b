package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/broker/snsbroker"
	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgstore"
)

// database is a store as the commands see it. Opening it has shown that it
// answers.
type database interface {
	// Migrate creates or updates the tables and returns what it applied.
	Migrate(ctx context.Context, o migrating) (applied []string, err error)
	// Status of the tables; also with tables that are missing, and, with an error,
	// where they are not for this version any more.
	Status(ctx context.Context) (status, error)
	// Relays that are at work; also with tables that lack migrations.
	Relays(ctx context.Context) ([]admin.RelayStatus, error)
	// Store is what the relay reads.
	Store(ctx context.Context) (relay.Store, error)
	// Admin is what operators do; write: to change something, not only to look.
	Admin(ctx context.Context, write bool) (admin.Store, error)
	// Ping asks whether the database answers.
	Ping(ctx context.Context) error
	Close() error
}

// status of the tables.
type status struct {
	Shards         int      // 0: not known
	Version        int      // of the tables; 0: there are none
	Known          int      // to this program
	CompatibleFrom int      // what a program must know to use the tables
	Missing        []string // migrations
}

// migrating says how.
type migrating struct {
	shards  int           // 0: what there is, or the default
	timeout time.Duration // for getting the locks
	waiting func(pgstore.Wait)
}

// opening says what a database is opened for.
type opening struct {
	create   bool // a database file that is not there may be made
	watchful bool // nothing takes long: a connection without an answer is dead
}

// openDatabase connects. A database that does not answer is exitConnect.
func openDatabase(ctx context.Context, c *config.Config, o opening) (database, error) {
	switch c.Database.Kind {
	case config.Postgres:
		return openPostgres(ctx, c, o.watchful)
	case config.SQLite:
		return openSQLite(ctx, c, o.create)
	default:
		return nil, fmt.Errorf("no database of kind %q", c.Database.Kind)
	}
}

// migrationScript is the SQL that creates the tables in an empty database.
func migrationScript(c *config.Config, shards int) (string, error) {
	switch c.Database.Kind {
	case config.SQLite:
		return sqliteScript(shards)
	default:
		return pgstore.Script(pgstore.Options{Schema: pgstore.Schema(c.Schema), Shards: shards})
	}
}

// publishers makes each route's publisher; clients are shared.
type publishers struct {
	sqs *sqs.Client
	sns *sns.Client
	sts *sts.Client
}

func (p *publishers) open(ctx context.Context, r *config.Route) (outbox.Publisher, error) {
	if err := p.connect(ctx); err != nil {
		return nil, err
	}
	switch r.To.Scheme {
	case "sqs":
		return sqsbroker.NewPublisher(sqsbroker.PublisherConfig{
			Client: p.sqs, Queue: r.To.Name, Encoding: sqsbroker.Encoding(r.Encoding),
		})
	case "sns":
		return snsbroker.NewPublisher(snsbroker.PublisherConfig{
			Client: p.sns, STS: p.sts, Topic: r.To.Name, Encoding: snsbroker.Encoding(r.Encoding),
		})
	default:
		return nil, fmt.Errorf("no publisher for %s://", r.To.Scheme)
	}
}

// connect makes the clients, taking everything from the SDK's own environment
// and files. It sends nothing.
func (p *publishers) connect(ctx context.Context) error {
	if p.sqs != nil {
		return nil
	}
	c, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return fmt.Errorf("AWS settings: %w", err)
	}
	if c.Region == "" {
		return errors.New("AWS settings: no region is set: set AWS_REGION, or region in ~/.aws/config")
	}
	p.sqs, p.sns, p.sts = sqs.NewFromConfig(c), sns.NewFromConfig(c), sts.NewFromConfig(c)
	return nil
}

// awsEndpoints are where requests go instead of AWS, if anywhere.
func awsEndpoints(c *config.Config) string {
	var all []string
	for i := range c.Routes {
		for _, name := range []string{"AWS_ENDPOINT_URL_" + strings.ToUpper(c.Routes[i].To.Scheme), "AWS_ENDPOINT_URL"} {
			if url := os.Getenv(name); url != "" {
				if !slices.Contains(all, url) {
					all = append(all, url)
				}
				break
			}
		}
	}
	return strings.Join(all, ",")
}

// routes makes the relay's routes, or reports what is wrong with all of them.
func routes(ctx context.Context, c *config.Config) ([]relay.Route, error) {
	var (
		made  []relay.Route
		wrong []error
		known publishers
	)
	for i := range c.Routes {
		r := &c.Routes[i]
		publisher, err := known.open(ctx, r)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: route %s: %w", r.At, r.Name, err))
			continue
		}
		made = append(made, relay.Route{
			Name: r.Name, Topics: r.Topics, Publisher: publisher,
			Start: relay.Start(r.Start), Order: relay.Order(r.Order), OnFailure: relay.OnFailure(r.OnFailure),
			Retry: retry(r.Retry), Rate: r.Rate, Concurrency: r.Concurrency, PublishTimeout: r.PublishTimeout,
		})
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, usage(err, "")
	}
	return made, nil
}

// retry says "none" where the operator wrote 0 and the relay's 0 means its default.
func retry(r config.Retry) relay.RetryPolicy {
	p := relay.RetryPolicy{MaxAttempts: r.MaxAttempts, Initial: r.Initial, Factor: r.Factor, Max: r.Max, Jitter: r.Jitter}
	if p.Jitter == 0 {
		p.Jitter = -1
	}
	return p
}
