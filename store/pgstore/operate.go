package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/admin"
)

const (
	// A settle updates the cursor's row first, so it and an operator wait for
	// each other, and rows are never locked in two orders.
	lockCursorSQL = `SELECT FROM {s}.cursor WHERE route = $1 AND shard = $2 FOR NO KEY UPDATE`

	// A message that stands in its key's way keeps its place there. One whose
	// key went on without it goes out late.
	retrySQL = `UPDATE {s}.parked SET
			state = CASE WHEN state IN ('scheduled', 'pending') THEN state ELSE 'retrying' END,
			due_at = '-infinity', attempts = 0, expires = NULL, changed_at = clock_timestamp()
		WHERE route = $1 AND shard = $2 AND seq = ANY ($3::bigint[]) AND state <> 'blocked'
		RETURNING seq, key`

	releaseSQL = `UPDATE {s}.parked SET due_at = '-infinity', changed_at = clock_timestamp()
		WHERE route = $1 AND shard = $2 AND seq = ANY ($3::bigint[]) AND state = 'failed' AND closes AND due_at IS NULL
		RETURNING seq, key`

	// The record is whole, also of a message that was only a number so far.
	discardSQL = `UPDATE {s}.parked AS p SET
			state = 'discarded', due_at = CASE WHEN p.closes THEN '-infinity'::timestamptz END, changed_at = clock_timestamp(),
			headers = CASE WHEN p.payload IS NULL THEN l.headers ELSE p.headers END, payload = coalesce(p.payload, l.payload)
		FROM unnest($3::bigint[]) AS o (seq)
		LEFT JOIN LATERAL (SELECT headers, payload FROM {log} WHERE seq = o.seq OFFSET 0) AS l ON true
		WHERE p.route = $1 AND p.shard = $2 AND p.seq = o.seq AND p.state <> 'discarded'
		RETURNING p.seq, p.key`

	// What counts as sent: read, settled, and not parked. Its number tells this
	// replay from all others. It waits for nothing of its key, so no key is
	// touched.
	replaySQL = `INSERT INTO {s}.parked (route, shard, seq, state, due_at, replay, key, id, topic, created_at, not_before, type, content_type)
		SELECT $1, $2, l.seq, 'pending', '-infinity', nextval($4::text::regclass), l.key, l.id, l.topic, l.created_at, l.not_before, l.type, l.content_type
		FROM {s}.cursor AS c
		CROSS JOIN LATERAL (SELECT * FROM {log} WHERE seq = ANY ($3::bigint[]) ORDER BY seq OFFSET 0) AS l
		WHERE c.route = $1 AND c.shard = $2 AND l.seq <= c.pos AND l.seq > c.started AND NOT c.unsettled @> l.seq AND {s}.takes_topic(c.topics, l.topic)
			AND NOT EXISTS (SELECT FROM {s}.gap AS g WHERE g.route = $1 AND g.shard = $2 AND g.numbers @> l.seq)
		ON CONFLICT (route, shard, seq) DO NOTHING
		RETURNING seq, ''`
)

// operateSQL are the statements of the actions.
var operateSQL = map[admin.Action]string{
	admin.Retry:   retrySQL,
	admin.Release: releaseSQL,
	admin.Discard: discardSQL,
	admin.Replay:  replaySQL,
}

// Operate does what an operator asks for inside the transaction, as
// admin.Operate says. It waits for a settle of the shard that is under way, and
// no other begins before the transaction ends: keep that short.
func (s Schema) Operate(ctx context.Context, tx pgx.Tx, op admin.Operation) (changed []int64, err error) {
	statement, ok := operateSQL[op.Action]
	if !ok {
		return nil, fmt.Errorf("there is no action %q", op.Action)
	}
	err = tx.QueryRow(ctx, s.sql(lockCursorSQL), op.Route, op.Shard).Scan()
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	args := []any{op.Route, op.Shard, op.Seqs}
	if op.Action == admin.Replay {
		if _, err := tx.Exec(ctx, keepUncleanedSQL, s.Name(), op.Shard); err != nil {
			return nil, err
		}
		args = append(args, s.Table("parked_arrival_seq"))
	}
	rows, err := tx.Query(ctx, s.logSQL(statement, op.Shard), args...)
	if err != nil {
		return nil, err
	}
	var (
		seq  int64
		key  string
		keys []string
		seen = map[string]bool{"": true}
	)
	_, err = pgx.ForEachRow(rows, []any{&seq, &key}, func() error {
		changed = append(changed, seq)
		if !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
		return nil
	})
	if err != nil || keys == nil {
		return changed, err
	}
	var batch pgx.Batch
	s.queueOrder(&batch, op.Route, op.Shard, keys)
	return changed, tx.SendBatch(ctx, &batch).Close()
}
