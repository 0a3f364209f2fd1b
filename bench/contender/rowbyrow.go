package contender

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// RowByRow is the poller that articles about the pattern show, without the pause
// of a second that they put between two batches.
type RowByRow struct{}

// rowByRowBatch is how many rows it locks at a time.
const rowByRowBatch = 10

const (
	rowByRowTable = `CREATE TABLE row_by_row (
		id         uuid        PRIMARY KEY,
		topic      text        NOT NULL,
		key        text        NOT NULL,
		type       text        NOT NULL,
		payload    jsonb       NOT NULL,
		status     text        NOT NULL DEFAULT 'pending',
		created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
		sent_at    timestamptz)`
	rowByRowIndex = `CREATE INDEX row_by_row_pending ON row_by_row (created_at) WHERE status = 'pending'`

	fillRowByRowSQL = `INSERT INTO row_by_row (id, topic, key, type, payload, status, sent_at)
		SELECT id, 'orders', key, 'order.created', payload::jsonb, $1, CASE WHEN $1 = 'sent' THEN now() END FROM bench_source ORDER BY n`
	takeRowByRowSQL = `SELECT id, topic, key, type, payload->>'n' FROM row_by_row WHERE status = 'pending' ORDER BY created_at LIMIT $1 FOR UPDATE SKIP LOCKED`
	sentRowByRowSQL = `UPDATE row_by_row SET status = 'sent', sent_at = now() WHERE id = $1`
)

// Setup makes the table.
func (RowByRow) Setup(ctx context.Context, db *pgxpool.Pool) error {
	return exec(ctx, db, rowByRowTable, rowByRowIndex)
}

// Fill copies the source.
func (RowByRow) Fill(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, fillRowByRowSQL, "pending")
	return err
}

// FillSent copies the source as published.
func (RowByRow) FillSent(ctx context.Context, db *pgxpool.Pool, _ string) error {
	_, err := db.Exec(ctx, fillRowByRowSQL, "sent")
	return err
}

// Reset empties the table.
func (RowByRow) Reset(ctx context.Context, db *pgxpool.Pool) error {
	return exec(ctx, db, "TRUNCATE row_by_row")
}

// Open connects.
func (r RowByRow) Open(ctx context.Context, o Options, sink *Sink) (func(context.Context) error, error) {
	db, err := connect(ctx, o.URL, 1)
	if err != nil {
		return nil, err
	}
	return poller(db, sink, r.batch), nil
}

func (RowByRow) batch(ctx context.Context, db *pgxpool.Pool, sink *Sink) (n int, err error) {
	type row struct {
		id                       [16]byte
		topic, key, kind, number string
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, takeRowByRowSQL, rowByRowBatch)
		if err != nil {
			return err
		}
		batch, err := pgx.CollectRows(rows, func(rows pgx.CollectableRow) (r row, err error) {
			return r, rows.Scan(&r.id, &r.topic, &r.key, &r.kind, &r.number)
		})
		if err != nil {
			return err
		}
		for _, r := range batch {
			sink.Mark(digits(r.number))
			sink.Batch(1)
			if _, err := tx.Exec(ctx, sentRowByRowSQL, r.id); err != nil {
				return err
			}
		}
		n = len(batch)
		return nil
	})
	return n, err
}
