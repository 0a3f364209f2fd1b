package contender

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const riverModule = "github.com/riverqueue/river"

// River is the job queue river, set up for throughput.
type River struct{}

const (
	riverWorkers     = 2000
	riverFetchPause  = 2 * time.Millisecond // default 100 ms
	riverPollPause   = 20 * time.Millisecond
	riverConnections = 10
)

// orderCreated is a message as a job of river.
type orderCreated struct {
	N       string `json:"n"`
	OrderID string `json:"orderId"`
	Note    string `json:"note"`
}

// Kind names the type of job.
func (orderCreated) Kind() string { return "order.created" }

// fillRiverSQL writes the rows that its InsertManyFast writes.
const fillRiverSQL = `INSERT INTO river_job (args, kind, max_attempts, metadata, priority, queue, scheduled_at, state, tags)
	SELECT payload::jsonb, 'order.created', 25, '{}', 1, 'default', now(), 'available', '{}' FROM bench_source ORDER BY n`

// Setup lets it migrate.
func (River) Setup(ctx context.Context, db *pgxpool.Pool) error {
	m, err := rivermigrate.New(riverpgxv5.New(db), &rivermigrate.Config{Logger: riverLogger()})
	if err != nil {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// Fill copies the source.
func (River) Fill(ctx context.Context, db *pgxpool.Pool) error { return exec(ctx, db, fillRiverSQL) }

// Reset empties its table of jobs.
func (River) Reset(ctx context.Context, db *pgxpool.Pool) error {
	return exec(ctx, db, "TRUNCATE river_job")
}

// Insert inserts a job.
func (River) Insert(ctx context.Context, db *pgxpool.Pool) (func(ctx context.Context, tx pgx.Tx, m Message) error, error) {
	client, err := river.NewClient(riverpgxv5.New(db), &river.Config{Logger: riverLogger()})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, tx pgx.Tx, m Message) error {
		_, err := client.InsertTx(ctx, tx, orderCreated{N: m.number(), OrderID: m.Key}, nil)
		return err
	}, nil
}

type riverWorker struct {
	river.WorkerDefaults[orderCreated]
	sink *Sink
}

// Work publishes one job.
func (w *riverWorker) Work(_ context.Context, job *river.Job[orderCreated]) error {
	w.sink.Mark(digits(job.Args.N))
	w.sink.Batch(1)
	return nil
}

// Open connects and makes a client that works.
func (River) Open(ctx context.Context, o Options, sink *Sink) (func(context.Context) error, error) {
	db, err := connect(ctx, o.URL, riverConnections)
	if err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{sink: sink})
	client, err := river.NewClient(riverpgxv5.New(db), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Workers: workers, FetchCooldown: riverFetchPause, FetchPollInterval: riverPollPause, Logger: riverLogger(),
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		defer db.Close()
		if err := client.Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		<-ctx.Done()
		return client.Stop(context.WithoutCancel(ctx))
	}, nil
}

func riverLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}
