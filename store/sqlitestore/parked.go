package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/postrider/postrider/relay"
)

// A key is closed while a row of it that closes is parked: a retrying or pending
// one, or one that failed under hold. Its blocked followers have no due time
// then. Once it opens, the earliest of them get one, a page at a time: that is
// all that promotion is.

// promotePage is how many followers of one key come due at a time.
const promotePage = 500

const (
	// sqlKeyClosed: what an operator has settled (failed or discarded, and due)
	// is in nobody's way.
	sqlKeyClosed = `SELECT EXISTS (SELECT 1 FROM postrider_parked
	WHERE route = ?1 AND shard = ?2 AND key = ?3 AND closes AND state <> 'blocked'
	AND (state IN ('retrying', 'pending') OR state = 'failed' AND due IS NULL))`
	// sqlDemote takes the due time from followers that were promoted, which are
	// the first ones or nearly. ?4 how many are looked at.
	sqlDemote = `UPDATE postrider_parked SET due = NULL, changed_at = ` + sqlNow + ` WHERE due IS NOT NULL AND arrival IN (
	SELECT arrival FROM postrider_parked
	WHERE route = ?1 AND shard = ?2 AND key = ?3 AND state = 'blocked' ORDER BY arrival LIMIT ?4)`
	// sqlPromote makes the earliest followers due at once, unless some are: then
	// the next page's turn comes when those are settled. ?4 how many.
	sqlPromote = `UPDATE postrider_parked SET due = 0, changed_at = ` + sqlNow + ` WHERE due IS NULL AND arrival IN (
	SELECT arrival FROM postrider_parked
	WHERE route = ?1 AND shard = ?2 AND key = ?3 AND state = 'blocked' ORDER BY arrival LIMIT ?4)`
	// sqlBlockedKeys are the keys that have followers.
	sqlBlockedKeys = `SELECT DISTINCT key FROM postrider_parked WHERE route = ?1 AND shard = ?2 AND state = 'blocked'`
	// sqlClosedKeys counts what is in the way of each key.
	sqlClosedKeys = `SELECT key, count(*) FROM (
	SELECT key FROM postrider_parked WHERE route = ?1 AND shard = ?2 AND state = 'blocked' AND key <> ''
	UNION ALL SELECT key FROM postrider_parked WHERE route = ?1 AND shard = ?2 AND closes AND state <> 'blocked') GROUP BY key`
	// sqlLetGo opens what failed messages keep closed: without hold none does. The
	// + keeps it from looking at all that failed.
	sqlLetGo = `UPDATE postrider_parked SET closes = 0, due = NULL
	WHERE route = ?1 AND shard = ?2 AND closes AND state <> 'blocked' AND +state = 'failed'`
)

// promote makes the key's followers fit whether it is open. The empty key is
// always open: it orders nothing.
func promote(ctx context.Context, tx *sql.Tx, route string, shard int, key string) error {
	closed := false
	if key != "" {
		if err := tx.QueryRowContext(ctx, sqlKeyClosed, route, shard, key).Scan(&closed); err != nil {
			return fmt.Errorf("ask whether key %q is closed: %w", key, err)
		}
	}
	if closed {
		if _, err := tx.ExecContext(ctx, sqlDemote, route, shard, key, 2*promotePage); err != nil {
			return fmt.Errorf("close key %q: %w", key, err)
		}
		return nil
	}
	if _, err := tx.ExecContext(ctx, sqlPromote, route, shard, key, promotePage); err != nil {
		return fmt.Errorf("open key %q: %w", key, err)
	}
	return nil
}

// loadKeys makes the followers of all keys fit the claim, since the route's rule
// may have changed between hold and release, and counts what is in the way of
// each key.
func loadKeys(ctx context.Context, tx *sql.Tx, claim *relay.Claim) (closed map[string]int, err error) {
	if !claim.Hold {
		if _, err := tx.ExecContext(ctx, sqlLetGo, claim.Route, claim.Shard); err != nil {
			return nil, fmt.Errorf("open the keys of failed messages: %w", err)
		}
	}
	var keys []string
	var key string
	err = eachRow(ctx, tx, sqlBlockedKeys, []any{claim.Route, claim.Shard}, func(scan func(...any) error) error {
		if err := scan(&key); err != nil {
			return err
		}
		keys = append(keys, key)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the keys with blocked messages: %w", err)
	}
	for _, key := range keys {
		if err := promote(ctx, tx, claim.Route, claim.Shard, key); err != nil {
			return nil, err
		}
	}
	closed = map[string]int{}
	err = eachRow(ctx, tx, sqlClosedKeys, []any{claim.Route, claim.Shard}, func(scan func(...any) error) error {
		var n int
		if err := scan(&key, &n); err != nil {
			return err
		}
		closed[key] = n
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count the closed keys: %w", err)
	}
	return closed, nil
}
