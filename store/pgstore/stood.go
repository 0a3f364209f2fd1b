package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/relay"
)

const (
	// Who removes a route deletes the marks too.
	goneSQL = `SELECT NOT EXISTS (SELECT FROM {s}.cursor WHERE route = $1 AND shard = $2)
		AND EXISTS (SELECT FROM {s}.mark WHERE route = $1 AND shard = $2 AND token = $3)`
	markedSQL = `SELECT EXISTS (SELECT FROM {s}.mark WHERE route = $1 AND shard = $2)`

	// What was settled was seen first, so it is older than this transaction.
	standSQL = `UPDATE {s}.cursor SET pos = $4, started = $5, topics_from = $6, unsettled = $7::text::int8multirange,
			seen = pg_snapshot_xmax(pg_current_snapshot())
		WHERE route = $1 AND shard = $2 AND token = $3 RETURNING ctid::text`
)

// Stood is where a lease stood of which somebody has deleted the cursor's row.
// What follows in the same process goes on there: to begin where the route's
// Start says would, with relay.StartNow, pass over what was not sent yet.
type Stood struct {
	pos, started, topicsFrom int64
	unsettled                numset.Set
}

// Stood returns where the lease stood if its cursor is gone, as far as that is
// known, otherwise nil. For after Close.
func (c *Cursor) Stood() *Stood {
	if !c.gone {
		return nil
	}
	return &c.stood
}

// lost tells why the token is not in the cursor's row: ErrFenced, with more to it
// where there is no row although nobody removed the route.
func (c *Cursor) lost(ctx context.Context) error {
	err := c.db.QueryRow(ctx, c.schema.sql(goneSQL), c.claim.Route, c.claim.Shard, c.token).Scan(&c.gone)
	if err != nil || !c.gone {
		return relay.ErrFenced // Close asks again
	}
	return fmt.Errorf("shard %d of route %s: somebody has deleted its row in %s; it goes on where it stood, at %d, with a new row "+
		"(to forget what a route has sent: postrider route remove): %w", c.claim.Shard, c.claim.Route, c.schema.Table("cursor"), c.stood.pos, relay.ErrFenced)
}

// goOn puts a new cursor where an earlier one stood whose row was deleted while a
// relay had it, as the mark of that lease tells: where s says, if that was in this
// process. It refuses to begin now if it was in another. False: begin as new.
func (c *Cursor) goOn(ctx context.Context, tx pgx.Tx, s *Stood) (bool, error) {
	var marked bool
	err := tx.QueryRow(ctx, c.schema.sql(markedSQL), c.claim.Route, c.claim.Shard).Scan(&marked)
	switch {
	case err != nil || !marked:
		return false, err
	case s != nil:
		c.Pos, c.Unsettled = s.pos, s.unsettled.Clone()
		c.stood.started, c.stood.topicsFrom = s.started, s.topicsFrom
		return true, tx.QueryRow(ctx, c.schema.sql(standSQL), c.claim.Route, c.claim.Shard, c.token, s.pos, s.started, s.topicsFrom, formatMultirange(s.unsettled)).Scan(&c.ctid)
	case c.claim.Start != relay.StartNow:
		return false, nil // which loses nothing
	}
	return false, fmt.Errorf("somebody has deleted its row in %s while a relay had it: to start now would pass over what was not sent. "+
		"If that relay runs it goes on where it stood. Otherwise send again what is still in the log, with start: beginning, or start now all the same: "+
		"DELETE FROM %s WHERE route = '%s' AND shard = %d", c.schema.Table("cursor"), c.schema.Table("mark"), quoteLiteral(c.claim.Route), c.claim.Shard)
}
