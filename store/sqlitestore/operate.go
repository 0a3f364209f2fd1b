package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/relay"
)

const (
	// sqlRetry: a message that stands in its key's way keeps its place there.
	// One whose key went on without it goes out late.
	sqlRetry = `UPDATE postrider_parked SET state = CASE WHEN state IN ('scheduled', 'pending') THEN state ELSE 'retrying' END,
	due = 0, attempts = 0, expires = NULL, changed_at = ` + sqlNow + `
	WHERE route = ?1 AND shard = ?2 AND seq = ?3 AND state <> 'blocked' RETURNING key`
	sqlRelease = `UPDATE postrider_parked SET due = 0, changed_at = ` + sqlNow + `
	WHERE route = ?1 AND shard = ?2 AND seq = ?3 AND state = 'failed' AND closes AND due IS NULL RETURNING key`
	sqlSettled = `SELECT pos, started, unsettled, topics FROM postrider_cursor WHERE route = ? AND shard = ?`
	// sqlNextReplay numbers the replays, so that one tells itself from all others.
	sqlNextReplay = `INSERT INTO postrider_meta (name, value) VALUES ('replays', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value`
)

// Operate does what an operator asks for inside the transaction, as
// admin.Operate says.
func Operate(ctx context.Context, tx *sql.Tx, op admin.Operation) (changed []int64, err error) {
	q := queriesOf(op.Shard)
	statement, ok := map[admin.Action]string{admin.Retry: sqlRetry, admin.Release: sqlRelease, admin.Discard: q.discard, admin.Replay: q.replay}[op.Action]
	if !ok {
		return nil, fmt.Errorf("there is no action %q", op.Action)
	}
	seqs := op.Seqs
	var more []any
	if op.Action == admin.Replay {
		if seqs, err = settled(ctx, tx, op, q.topic); err != nil || len(seqs) == 0 {
			return nil, err
		}
		var number int64
		if err := tx.QueryRowContext(ctx, sqlNextReplay).Scan(&number); err != nil {
			return nil, fmt.Errorf("number the replay: %w", err)
		}
		more = append(more, number)
	}
	touched := map[string]bool{}
	for _, seq := range seqs {
		var key string
		err := tx.QueryRowContext(ctx, statement, append([]any{op.Route, op.Shard, seq}, more...)...).Scan(&key)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err == nil && op.Action == admin.Discard {
			_, err = tx.ExecContext(ctx, q.fillCopy, op.Route, op.Shard, seq)
		}
		if err != nil {
			return nil, fmt.Errorf("number %d: %w", seq, err)
		}
		changed = append(changed, seq)
		touched[key] = true
	}
	delete(touched, "")
	for key := range touched {
		if err := promote(ctx, tx, op.Route, op.Shard, key); err != nil {
			return nil, err
		}
	}
	return changed, nil
}

// settled are those of the numbers that count as done, of the route's topics.
func settled(ctx context.Context, tx *sql.Tx, op admin.Operation, topicOf string) (seqs []int64, err error) {
	var pos, started int64
	var text, topics, topic string
	err = tx.QueryRowContext(ctx, sqlSettled, op.Route, op.Shard).Scan(&pos, &started, &text, &topics)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the cursor: %w", err)
	}
	unsettled, err := decodeNumbers(text)
	if err != nil {
		return nil, err
	}
	patterns, err := decodeTopics(topics)
	if err != nil {
		return nil, err
	}
	match, err := relay.Matcher(patterns)
	if err != nil {
		return nil, err
	}
	for _, seq := range op.Seqs {
		if seq <= started || seq > pos || unsettled.Has(seq) {
			continue
		}
		switch err := tx.QueryRowContext(ctx, topicOf, seq).Scan(&topic); {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return nil, fmt.Errorf("read number %d: %w", seq, err)
		case match(topic):
			seqs = append(seqs, seq)
		}
	}
	return seqs, nil
}
