package contender

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SkipLocked is the fastest of the usual designs, written here because libraries
// that do so cannot all be had through the module proxy: one transaction takes a
// batch with SKIP LOCKED, publishes it, deletes it and commits.
type SkipLocked struct {
	Batch int
}

const (
	skipLockedTable = `CREATE TABLE skip_locked (
		id         bigserial   PRIMARY KEY,
		message_id uuid        NOT NULL,
		topic      text        NOT NULL,
		key        text        NOT NULL,
		type       text        NOT NULL,
		payload    bytea       NOT NULL,
		created_at timestamptz NOT NULL DEFAULT clock_timestamp())`
	fillSkipLockedSQL = `INSERT INTO skip_locked (message_id, topic, key, type, payload)
		SELECT id, 'orders', key, 'order.created', convert_to(payload, 'UTF8') FROM bench_source ORDER BY n`
	takeSkipLockedSQL   = `SELECT id, topic, key, type, payload FROM skip_locked ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED`
	deleteSkipLockedSQL = `DELETE FROM skip_locked WHERE id = ANY ($1)`
)

// Setup makes the table.
func (SkipLocked) Setup(ctx context.Context, db *pgxpool.Pool) error {
	return exec(ctx, db, skipLockedTable)
}

// Fill copies the source.
func (SkipLocked) Fill(ctx context.Context, db *pgxpool.Pool) error {
	return exec(ctx, db, fillSkipLockedSQL)
}

// Reset empties the table.
func (SkipLocked) Reset(ctx context.Context, db *pgxpool.Pool) error {
	return exec(ctx, db, "TRUNCATE skip_locked")
}

// Open connects.
func (s SkipLocked) Open(ctx context.Context, o Options, sink *Sink) (func(context.Context) error, error) {
	db, err := connect(ctx, o.URL, 1)
	if err != nil {
		return nil, err
	}
	return poller(db, sink, s.batch), nil
}

// taken is a row that a transaction holds.
type taken struct {
	id               int64
	topic, key, kind string
	payload          []byte
}

func (s SkipLocked) batch(ctx context.Context, db *pgxpool.Pool, sink *Sink) (n int, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, takeSkipLockedSQL, s.Batch)
		if err != nil {
			return err
		}
		batch, ids := make([]taken, 0, s.Batch), make([]int64, 0, s.Batch)
		var r taken
		_, err = pgx.ForEachRow(rows, []any{&r.id, &r.topic, &r.key, &r.kind, &r.payload}, func() error {
			batch, ids = append(batch, r), append(ids, r.id)
			return nil
		})
		if n = len(batch); err != nil || n == 0 {
			return err
		}
		for i := range batch {
			sink.MarkPayload(batch[i].payload)
		}
		sink.Batch(n)
		_, err = tx.Exec(ctx, deleteSkipLockedSQL, ids)
		return err
	})
	if err != nil {
		return n, fmt.Errorf("a batch of %d: %w", s.Batch, err)
	}
	return n, nil
}
