package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Querier is what reads: a pool, a connection or a transaction.
type Querier interface {
	rowQuerier
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Tails returns the highest number that each shard's sequence has given out, 0
// for none, in one statement. A sequence that was never called says 1 and means
// 0. Numbers up to the tail that are not there belong to transactions that are
// open or were rolled back.
func Tails(ctx context.Context, db Querier, schema Schema, shards []int) (map[int]int64, error) {
	rows, err := db.Query(ctx, tailsSQL(schema, shards))
	if err != nil {
		return nil, fmt.Errorf("read the sequences of the log: %w", err)
	}
	tails := make(map[int]int64, len(shards))
	var shard int
	var tail int64
	if _, err := pgx.ForEachRow(rows, []any{&shard, &tail}, func() error { tails[shard] = tail; return nil }); err != nil {
		return nil, fmt.Errorf("read the sequences of the log: %w", err)
	}
	return tails, nil
}

// TailColumn is the tail, in a SELECT from a shard's sequence.
const TailColumn = `CASE WHEN is_called THEN last_value ELSE last_value - 1 END`

func tailsSQL(schema Schema, shards []int) string {
	parts := make([]string, len(shards))
	for i, shard := range shards {
		parts[i] = fmt.Sprintf(`SELECT %d, %s FROM %s`, shard, TailColumn, schema.LogSequence(shard))
	}
	return strings.Join(parts, " UNION ALL ")
}
