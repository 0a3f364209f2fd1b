package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Querier is what reads: a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
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

// ErrStandby means that the server is a standby. Nothing can be written there, and
// every number that it has not replayed yet looks dead.
var ErrStandby = errors.New("the database is a standby: the relay needs the primary")

// checkSQL tells also of the first table of which the session would not see all.
const checkSQL = `SELECT pg_is_in_recovery(), seqincrement, seqcache, seqcycle, (SELECT min(relname::text) FROM pg_catalog.pg_class
		WHERE relnamespace = $2::text::regnamespace AND relrowsecurity AND row_security_active(oid))
	FROM pg_catalog.pg_sequence WHERE seqrelid = $1::text::regclass`

// CheckSequence reports an error if the sequence of a shard cannot be trusted: it
// must count up by one, without cache or cycle, as it was created; and if a
// policy hides rows of any table: a number that is not seen counts as rolled back.
// ErrStandby on a standby.
func CheckSequence(ctx context.Context, db Querier, schema Schema, shard int) error {
	var increment, cache int64
	var standby, cycle bool
	var hidden *string
	err := db.QueryRow(ctx, checkSQL, schema.LogSequence(shard), schema.quoted()).Scan(&standby, &increment, &cache, &cycle, &hidden)
	if err != nil {
		return fmt.Errorf("read the settings of sequence %s: %w", schema.LogSequence(shard), err)
	}
	if standby {
		return ErrStandby
	}
	if increment != 1 || cache != 1 || cycle {
		return fmt.Errorf("sequence %[1]s has increment %[2]d, cache %[3]d, cycle %[4]t, so messages can be missed: ALTER SEQUENCE %[1]s INCREMENT 1 CACHE 1 NO CYCLE",
			schema.LogSequence(shard), increment, cache, cycle)
	}
	if hidden != nil {
		return fmt.Errorf("row level security hides rows of table %[1]s from this role, so messages can be missed: ALTER TABLE %[1]s DISABLE ROW LEVEL SECURITY, or give the role BYPASSRLS",
			schema.Table(*hidden))
	}
	return nil
}
