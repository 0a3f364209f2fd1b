package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

// blockedKeysSQL lists keys that have blocked messages, by jumping from one to
// the next in the index.
const blockedKeysSQL = `WITH RECURSIVE k (key) AS (
		(SELECT key FROM {s}.parked WHERE route = $1 AND shard = $2 AND state = 'blocked' AND key > $3 ORDER BY key LIMIT 1)
		UNION ALL
		SELECT (SELECT key FROM {s}.parked WHERE route = $1 AND shard = $2 AND state = 'blocked' AND key > k.key ORDER BY key LIMIT 1)
		FROM k WHERE k.key IS NOT NULL)
	SELECT key FROM k WHERE key IS NOT NULL LIMIT $4`

// holdSQL locks the cursor's row where it still has the token.
const holdSQL = `SELECT true FROM {s}.cursor WHERE route = $1 AND shard = $2 AND token = $3 FOR UPDATE`

// healPage is how many keys one Heal looks at.
const healPage = 1000

// Heal lets keys go on that wait for nothing, which happens only when somebody
// deletes or changes parked rows by hand. It looks at some keys after the given
// one, and returns after which key the next call is to go on. relay.ErrFenced if
// the lease is lost.
func (c *Cursor) Heal(ctx context.Context, after string) (next string, err error) {
	keys, err := c.blockedKeys(ctx, after)
	if err == nil && len(keys) > 0 {
		err = c.order(ctx, keys)
	}
	if err != nil {
		return "", fmt.Errorf("look for keys of shard %d of route %s that wait for nothing: %w", c.claim.Shard, c.claim.Route, err)
	}
	if len(keys) == healPage {
		next = keys[healPage-1]
	}
	return next, nil
}

// blockedKeys takes no lock, and so no transaction id where there are none.
func (c *Cursor) blockedKeys(ctx context.Context, after string) ([]string, error) {
	rows, err := c.db.Query(ctx, c.schema.sql(blockedKeysSQL), c.claim.Route, c.claim.Shard, after, healPage)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// order decides anew which blocked messages of the keys are due.
func (c *Cursor) order(ctx context.Context, keys []string) error {
	return pgx.BeginTxFunc(ctx, c.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		var held bool
		err := tx.QueryRow(ctx, c.schema.sql(holdSQL), c.claim.Route, c.claim.Shard, c.token).Scan(&held)
		if errors.Is(err, pgx.ErrNoRows) {
			return relay.ErrFenced
		}
		if err != nil {
			return err
		}
		var batch pgx.Batch
		c.schema.queueOrder(&batch, c.claim.Route, c.claim.Shard, keys)
		return tx.SendBatch(ctx, &batch).Close()
	})
}
