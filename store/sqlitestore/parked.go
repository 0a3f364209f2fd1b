package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/postrider/postrider/outbox"
)

// A key is closed while a retrying or pending row of it is parked (under hold also a failed
// one). Its blocked followers have no due time then. Once it opens, the earliest
// of them get one, a page at a time: that is all that promotion is.

// promotePage is how many followers of one key come due at a time.
const promotePage = 500

const (
	// closing is the condition that a row keeps its key closed. ?4 is the state
	// that does so besides retrying: failed under hold, otherwise retrying again.
	sqlKeyClosed = `SELECT EXISTS (SELECT 1 FROM postrider_parked
	WHERE route = ?1 AND shard = ?2 AND key = ?3 AND state IN ('retrying', 'pending', ?4))`
	// sqlDemote takes the due time from followers that were promoted.
	sqlDemote = `UPDATE postrider_parked SET due = NULL
	WHERE route = ?1 AND shard = ?2 AND key = ?3 AND state = 'blocked' AND due IS NOT NULL`
	// sqlPromote gives the earliest followers a due time, unless some have one:
	// then the next page's turn comes when those are settled. ?4 how many.
	sqlPromote = `UPDATE postrider_parked SET due = ` + sqlNow + ` WHERE arrival IN (
	SELECT arrival FROM postrider_parked
	WHERE route = ?1 AND shard = ?2 AND key = ?3 AND state = 'blocked' ORDER BY arrival LIMIT ?4)
	AND NOT EXISTS (SELECT 1 FROM postrider_parked
	WHERE route = ?1 AND shard = ?2 AND key = ?3 AND state = 'blocked' AND due IS NOT NULL)`
	// sqlBlockedKeys are the keys that have followers.
	sqlBlockedKeys = `SELECT DISTINCT key FROM postrider_parked WHERE route = ?1 AND shard = ?2 AND state = 'blocked'`
	// sqlClosedKeys counts what is in the way of each key. ?3 as ?4 above.
	sqlClosedKeys = `SELECT key, count(*) FROM postrider_parked
	WHERE route = ?1 AND shard = ?2 AND key <> '' AND state IN ('retrying', 'pending', 'blocked', ?3) GROUP BY key`
)

// closingState is the state that closes a key besides retrying.
func (l *lease) closingState() outbox.State {
	if l.claim.Hold {
		return outbox.StateFailed
	}
	return outbox.StateRetrying
}

// promote makes the key's followers fit whether it is open. The empty key is
// always open: it orders nothing.
func (l *lease) promote(ctx context.Context, tx *sql.Tx, key string) error {
	closed := false
	if key != "" {
		err := tx.QueryRowContext(ctx, sqlKeyClosed, l.claim.Route, l.claim.Shard, key, l.closingState()).Scan(&closed)
		if err != nil {
			return fmt.Errorf("ask whether key %q is closed: %w", key, err)
		}
	}
	if closed {
		if _, err := tx.ExecContext(ctx, sqlDemote, l.claim.Route, l.claim.Shard, key); err != nil {
			return fmt.Errorf("close key %q: %w", key, err)
		}
		return nil
	}
	if _, err := tx.ExecContext(ctx, sqlPromote, l.claim.Route, l.claim.Shard, key, promotePage); err != nil {
		return fmt.Errorf("open key %q: %w", key, err)
	}
	return nil
}

// reopenKeys does it for all keys, since the route's rule may have changed
// between hold and release.
func (l *lease) reopenKeys(ctx context.Context, tx *sql.Tx) error {
	keys, err := l.blockedKeys(ctx, tx)
	if err != nil {
		return fmt.Errorf("read the keys with blocked messages: %w", err)
	}
	for _, key := range keys {
		if err := l.promote(ctx, tx, key); err != nil {
			return err
		}
	}
	return nil
}

func (l *lease) blockedKeys(ctx context.Context, tx *sql.Tx) ([]string, error) {
	rows, err := tx.QueryContext(ctx, sqlBlockedKeys, l.claim.Route, l.claim.Shard)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var keys []string
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, rows.Err()
}

// countClosed counts the messages in the way of each closed key.
func (l *lease) countClosed(ctx context.Context, tx *sql.Tx) (map[string]int, error) {
	rows, err := tx.QueryContext(ctx, sqlClosedKeys, l.claim.Route, l.claim.Shard, l.closingState())
	if err != nil {
		return nil, fmt.Errorf("count the closed keys: %w", err)
	}
	defer rows.Close()
	closed := map[string]int{}
	for rows.Next() {
		var (
			key string
			n   int
		)
		if err := rows.Scan(&key, &n); err != nil {
			return nil, fmt.Errorf("count the closed keys: %w", err)
		}
		closed[key] = n
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("count the closed keys: %w", err)
	}
	return closed, nil
}
