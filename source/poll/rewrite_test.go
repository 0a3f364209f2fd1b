package poll_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// rewriting changes statements on their way to the server, so that tests can
// plant a mistake in the protocol without a switch in the product.
type rewriting struct {
	*pgxpool.Pool
	rewrite func(sql string) string // nil: changes nothing
}

func (r rewriting) sql(s string) string {
	if r.rewrite == nil {
		return s
	}
	return r.rewrite(s)
}

func (r rewriting) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return r.Pool.Exec(ctx, r.sql(sql), args...)
}

func (r rewriting) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return r.Pool.Query(ctx, r.sql(sql), args...)
}

func (r rewriting) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return r.Pool.QueryRow(ctx, r.sql(sql), args...)
}

func (r rewriting) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	for _, q := range batch.QueuedQueries {
		q.SQL = r.sql(q.SQL)
	}
	return r.Pool.SendBatch(ctx, batch)
}

func (r rewriting) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	tx, err := r.Pool.BeginTx(ctx, opts)
	return rewritingTx{tx, r}, err
}

// rewritingTx does the same within a transaction.
type rewritingTx struct {
	pgx.Tx
	r rewriting
}

func (t rewritingTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.Tx.Exec(ctx, t.r.sql(sql), args...)
}

func (t rewritingTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.Tx.Query(ctx, t.r.sql(sql), args...)
}

func (t rewritingTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.Tx.QueryRow(ctx, t.r.sql(sql), args...)
}
