package contender

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
)

// Postrider is this project with its default settings.
type Postrider struct{}

// postriderConnections is the default of the setting limits.connections.
const postriderConnections = 8

// Rereads marks it as one that leaves the messages in place.
func (Postrider) Rereads() {}

// Setup migrates.
func (Postrider) Setup(ctx context.Context, db *pgxpool.Pool) error {
	_, err := pgstore.Migrate(ctx, db, pgstore.Options{})
	return err
}

// Fill copies the source into the shards' logs.
func (Postrider) Fill(ctx context.Context, db *pgxpool.Pool) error {
	const prepare = `CREATE TEMPORARY TABLE sharded ON COMMIT DROP AS SELECT *, postrider.shard_of(key) AS shard FROM bench_source`
	const fill = `INSERT INTO %s (id, topic, key, type, payload)
		SELECT id, 'orders', key, 'order.created', convert_to(payload, 'UTF8') FROM sharded WHERE shard = %d ORDER BY n`
	statements := []string{prepare}
	for shard := range pgstore.DefaultShards {
		statements = append(statements, fmt.Sprintf(fill, pgstore.Schema("").Log(shard), shard))
	}
	return exec(ctx, db, statements...)
}

// Reset makes the tables anew.
func (p Postrider) Reset(ctx context.Context, db *pgxpool.Pool) error {
	if err := exec(ctx, db, "DROP SCHEMA postrider CASCADE"); err != nil {
		return err
	}
	return p.Setup(ctx, db)
}

// Insert enqueues through the Writer of package outbox.
func (Postrider) Insert(context.Context, *pgxpool.Pool) (func(ctx context.Context, tx pgx.Tx, m Message) error, error) {
	writer := outbox.NewWriter(pgstore.Pgx{})
	return func(ctx context.Context, tx pgx.Tx, m Message) error {
		return writer.Enqueue(ctx, tx, outbox.Message{Topic: "orders", Key: m.Key, Type: "order.created", Payload: m.Payload})
	}, nil
}

// FillSent fills the logs and lets a relay publish what is in them.
func (p Postrider) FillSent(ctx context.Context, db *pgxpool.Pool, reader string) error {
	var n int
	if err := db.QueryRow(ctx, "SELECT count(*) FROM bench_source").Scan(&n); err != nil {
		return err
	}
	if err := p.Fill(ctx, db); err != nil {
		return err
	}
	sink := NewSink(0, 0)
	run, err := p.Open(ctx, Options{URL: db.Config().ConnString(), Reader: reader}, sink)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for sink.Count() < n && running.Err() == nil {
			pause(running, idlePause)
		}
		stop()
	}()
	if err := run(running); err != nil {
		return err
	}
	if sink.Count() != n {
		return fmt.Errorf("%d messages of %d were published: %w", sink.Count(), n, context.Cause(ctx))
	}
	return nil
}

// Open connects as the command does and configures a relay with one route for
// all topics.
func (Postrider) Open(ctx context.Context, o Options, sink *Sink) (func(context.Context) error, error) {
	db, err := connect(ctx, o.URL, postriderConnections, func(c *pgxpool.Config) {
		pgstore.Quiet(c)
		pgstore.Watchful(c, 0)
	})
	if err != nil {
		return nil, err
	}
	store, err := poll.New(poll.Config{Pool: db})
	if err != nil {
		return nil, err
	}
	r, err := relay.New(relay.Config{
		Store:  store,
		Routes: []relay.Route{{Name: o.Reader, Topics: []string{"**"}, Publisher: &publisher{sink: sink, verify: o.Verify}}},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		defer db.Close()
		return r.Run(ctx)
	}, nil
}
