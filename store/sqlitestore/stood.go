package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/postrider/postrider/relay"
)

const (
	sqlRemoved = `SELECT EXISTS (SELECT 1 FROM postrider_audit WHERE route = ? AND action = 'remove' AND at >= ?)`
	// sqlGone: the row was deleted, and not by an operator who removed the route.
	sqlGone = `SELECT NOT EXISTS (SELECT 1 FROM postrider_cursor WHERE route = ?1 AND shard = ?2)
	AND NOT EXISTS (SELECT 1 FROM postrider_audit WHERE route = ?1 AND action = 'remove' AND at >= ?3)`
)

// stood is where a lease stood, as last recorded. Should somebody delete the
// cursor's row under it, the next lease of the same Store goes on there: to begin
// where the route's Start says would, with relay.StartNow, pass over what was not
// sent yet.
type stood struct {
	pos, started, topicsFrom int64
	unsettled                string
	taken                    int64 // by the database's clock
}

// place is one shard of one route.
type place struct {
	route string
	shard int
}

// lost tells why the token is not in the cursor's row: ErrFenced, with more to it
// where there is no row although nobody removed the route.
func (l *lease) lost(ctx context.Context, q querier) error {
	err := q.QueryRowContext(ctx, sqlGone, l.claim.Route, l.claim.Shard, l.taken).Scan(&l.gone)
	if err != nil || !l.gone {
		return relay.ErrFenced // Close asks again
	}
	return fmt.Errorf("somebody has deleted its row in postrider_cursor; it goes on where it stood, at %d, with a new row (to forget what a route has sent: postrider route remove): %w",
		l.stood.pos, relay.ErrFenced)
}

// remember notes where a lease stood; nil: that is in the database.
func (s *Store) remember(claim *relay.Claim, at *stood) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at == nil {
		delete(s.stood, place{claim.Route, claim.Shard})
		return
	}
	if s.stood == nil {
		s.stood = make(map[place]stood)
	}
	s.stood[place{claim.Route, claim.Shard}] = *at
}

// begin is the state of a new cursor. Nobody else can be writing now: what is not
// there yet, after the last number, commits later.
func (l *lease) begin(ctx context.Context, tx *sql.Tx, last int64) (stood, error) {
	at := stood{unsettled: "[]"}
	if l.claim.Start == relay.StartNow {
		at.pos, at.started, at.topicsFrom = last, last, last
	}
	l.store.mu.Lock()
	before, had := l.store.stood[place{l.claim.Route, l.claim.Shard}]
	l.store.mu.Unlock()
	if !had {
		return at, nil
	}
	var removed bool
	if err := tx.QueryRowContext(ctx, sqlRemoved, l.claim.Route, before.taken).Scan(&removed); err != nil {
		return at, fmt.Errorf("look whether the route was removed: %w", err)
	}
	if removed {
		return at, nil
	}
	return before, nil
}
