package contender

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/vgarvardt/gue/v5"
	"github.com/vgarvardt/gue/v5/adapter/pgxv5"
)

const gueModule = "github.com/vgarvardt/gue/v5"

// Gue is the job queue gue.
type Gue struct{}

// gueWorkers take jobs at the same time, each on a connection.
const gueWorkers = 16

// gueTable is the file migrations/schema.sql of its module, which is not embedded
// in it.
const gueTable = `CREATE TABLE gue_jobs (
	job_id      TEXT        NOT NULL PRIMARY KEY,
	priority    SMALLINT    NOT NULL,
	run_at      TIMESTAMPTZ NOT NULL,
	job_type    TEXT        NOT NULL,
	args        BYTEA       NOT NULL,
	error_count INTEGER     NOT NULL DEFAULT 0,
	last_error  TEXT,
	queue       TEXT        NOT NULL,
	created_at  TIMESTAMPTZ NOT NULL,
	updated_at  TIMESTAMPTZ NOT NULL)`

const (
	gueIndex = `CREATE INDEX idx_gue_jobs_selector ON gue_jobs (queue, run_at, priority)`
	// The ids are valid ULIDs.
	fillGueSQL = `INSERT INTO gue_jobs (job_id, priority, run_at, job_type, args, queue, created_at, updated_at)
		SELECT lpad(n::text, 26, '0'), 0, clock_timestamp(), 'order.created', convert_to(payload, 'UTF8'), '', now(), now() FROM bench_source ORDER BY n`
)

// Setup makes its table.
func (Gue) Setup(ctx context.Context, db *pgxpool.Pool) error {
	return exec(ctx, db, gueTable, gueIndex)
}

// Fill copies the source.
func (Gue) Fill(ctx context.Context, db *pgxpool.Pool) error { return exec(ctx, db, fillGueSQL) }

// Reset empties its table.
func (Gue) Reset(ctx context.Context, db *pgxpool.Pool) error {
	return exec(ctx, db, "TRUNCATE gue_jobs")
}

// Open connects and makes a pool of workers.
func (Gue) Open(ctx context.Context, o Options, sink *Sink) (func(context.Context) error, error) {
	db, err := connect(ctx, o.URL, gueWorkers)
	if err != nil {
		return nil, err
	}
	client, err := gue.NewClient(pgxv5.NewConnPool(db))
	if err != nil {
		return nil, err
	}
	workers, err := gue.NewWorkerPool(client, gue.WorkMap{"order.created": func(_ context.Context, j *gue.Job) error {
		sink.MarkPayload(j.Args)
		sink.Batch(1)
		return nil
	}}, gueWorkers, gue.WithPoolPollStrategy(gue.RunAtPollStrategy), gue.WithPoolGracefulShutdown(context.Background))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		defer db.Close()
		return unlessDone(ctx, workers.Run(ctx))
	}, nil
}
