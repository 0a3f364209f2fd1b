package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/telemetry"
)

type relayCommand struct {
	commonFlags
	relayFlags
}

func (*relayCommand) Help() string {
	return `Examples:

  postrider relay --db postgres://shop@db.example/shop --to sqs://orders
  postrider relay --db sqlite:shop.db --to 'sns://{topic}'
  postrider relay --config /etc/postrider.yaml

A file with two routes:

  database: ${DATABASE_URL}
  routes:
    - {name: orders, topics: [orders, "billing.*"], to: sqs://orders}
    - {name: audit, topics: ["**"], to: sns://audit.fifo}

sqs://QUEUE and sns://TOPIC take a name or an ARN; ".fifo" at its end means FIFO.

AWS credentials, region and endpoint come from where the AWS SDK looks for them: AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL, instance roles and so on.

SIGTERM or ctrl-C stops it once everything sent is recorded; a second one ends it at once.`
}

func (r *relayCommand) Run(p *process, ctx context.Context) error {
	c, err := load(p, &r.commonFlags, &r.relayFlags, config.Input{Database: true, Routes: true})
	if err != nil {
		return err
	}
	logger := newLogger(p.Stderr, c.Log)
	warn(logger, c)
	limitMemory(c)
	ctx, release := untilSignal(ctx, logger, p.Exit)
	defer release()
	err = relayMessages(ctx, c, logger)
	if err != nil && c.Log.Format == "json" {
		attrs := []any{"error", err}
		if f, ok := errors.AsType[*failure](err); ok && f.next != "" {
			attrs = append(attrs, "next", f.next)
		}
		logger.Error("postrider ends with an error", attrs...)
		return &alreadySaid{err}
	}
	return err
}

func warn(logger *slog.Logger, c *config.Config) {
	for _, w := range c.Warnings {
		logger.Warn("odd setting", "problem", w.String())
	}
}

// relayMessages runs the relay until ctx ends. What can be refused without
// the database is refused first.
func relayMessages(ctx context.Context, c *config.Config, logger *slog.Logger) (err error) {
	made, err := routes(ctx, c)
	if err != nil {
		return err
	}
	listener, err := listen(c, logger)
	if err != nil {
		return err
	}
	if listener != nil {
		defer func() { _ = listener.Close() }() // the monitor has, if it came to that
	}
	db, store, s, err := openForRelay(ctx, c)
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped before anything was published
		}
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	registry := prometheus.NewRegistry()
	if listener != nil {
		if store, err = measure(ctx, registry, db, store, made); err != nil {
			return err
		}
	}
	rl, err := relay.New(relay.Config{
		Store: store, Routes: made, Lease: c.Lease, Retention: c.Retention, Logger: logger,
		Limits: relay.Limits{InFlightMessages: c.Limits.InFlightMessages, InFlightBytes: int64(c.Limits.InFlightBytes), ParkedPending: c.Limits.ParkedPending},
	})
	if err != nil {
		return usage(err, "")
	}
	announce(logger, c, s, listener)
	if p, ok := db.(*postgres); ok {
		p.report(logger)
	}
	registry.MustRegister(telemetry.NewCollector(rl.Stats))
	watch := newLogWatch(db, s.Shards, logger)
	defer watch.start(ctx)()
	m := serve(listener, registry, &readiness{ctx: ctx, relay: rl, db: db, log: watch}, logger)
	defer m.close(ctx)
	err = rl.Run(ctx)
	if u, ok := errors.AsType[*relay.UnsettledError](err); ok {
		return &failure{code: exitUnsettled, err: fmt.Errorf("stopped with %d messages that may be published again", u.Messages)}
	}
	if err == nil {
		logger.Info("stopped: everything that was sent is recorded")
	}
	return err
}

// openForRelay connects and sees to it that the tables are there.
func openForRelay(ctx context.Context, c *config.Config) (database, relay.Store, status, error) {
	db, err := openDatabase(ctx, c, opening{watchful: true})
	if err != nil {
		return nil, nil, status{}, err
	}
	var store relay.Store
	s, err := db.Status(ctx)
	switch {
	case err != nil:
		err = tablesError(c, err)
	case s.Version == 0:
		err = usage(errors.New("the outbox tables are missing from "+c.Database.String()), "create them: "+migrateUpCommand(c))
	case len(s.Missing) > 0:
		err = usage(fmt.Errorf("the outbox tables lack %s", strings.Join(s.Missing, ", ")), "bring them up to date: "+migrateUpCommand(c))
	default:
		store, err = db.Store(ctx)
	}
	if err != nil {
		return nil, nil, status{}, errors.Join(err, db.Close())
	}
	return db, store, s, nil
}

// announce is the first line of every log: what runs, on what, and why so.
func announce(logger *slog.Logger, c *config.Config, s status, listener net.Listener) {
	list := make([]string, len(c.Routes))
	for i, r := range c.Routes {
		list[i] = fmt.Sprintf("%s: %s -> %s", r.Name, strings.Join(r.Topics, ","), r.To)
	}
	why := "auto: this version has no other"
	if c.Source != "auto" {
		why = "set"
	}
	attrs := []any{"version", describe(), "database", c.Database}
	if c.Database.Kind == config.Postgres {
		attrs = append(attrs, "schema", c.Schema)
	}
	attrs = append(attrs, "shards", s.Shards, "routes", list, "source", "poll", "source_reason", why, "lease", c.Lease,
		"retention_sent", kept(c.Retention.Sent), "retention_failed", kept(c.Retention.Failed))
	if c.File != "" {
		attrs = append(attrs, "config", c.File)
	}
	if endpoint := awsEndpoints(c); endpoint != "" {
		attrs = append(attrs, "aws_endpoint", endpoint)
	}
	if listener != nil {
		attrs = append(attrs, "http", listener.Addr().String())
	}
	logger.Info("postrider relay starts", attrs...)
}

// kept is how long messages are kept, as the setting is written.
func kept(d time.Duration) string {
	if d == relay.Keep {
		return "keep"
	}
	return d.Truncate(time.Microsecond).String() // 0s is the shortest there is
}

// measure puts clocks between the relay and its store and publishers, and
// registers what they and the database tell.
func measure(ctx context.Context, registry *prometheus.Registry, db database, store relay.Store, routes []relay.Route) (relay.Store, error) {
	operators, err := db.Admin(ctx, false)
	if err != nil {
		return nil, err
	}
	if p, ok := db.(*postgres); ok {
		registry.MustRegister(connections{p.pool})
	}
	timings := telemetry.NewTimings()
	registry.MustRegister(timings, telemetry.NewStoreCollector(telemetry.StoreConfig{Status: operators.Status}),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for i := range routes {
		routes[i].Publisher = timings.Publisher(routes[i].Name, routes[i].Publisher)
	}
	return timings.Store(store), nil
}
