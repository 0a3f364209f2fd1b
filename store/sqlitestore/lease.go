package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/relay"
)

// lease is one owner's hold on one shard of one route.
type lease struct {
	store  *Store
	claim  relay.Claim
	match  func(topic string) bool
	token  int64
	closed map[string]int
	sql    queries

	// Only Receive's goroutine uses these.
	interval    time.Duration // of looking for commits
	parkedFirst bool          // whose turn it is to be read first

	deaths   int   // of the leases before this one, in a row
	taken    int64 // when it was taken, by the database's clock
	known    int64 // what is numbered up to here was read before
	survived bool  // the counting begins anew
	stood    stood // as last recorded
	gone     bool  // somebody has deleted the cursor's row

	mu       sync.Mutex
	deadline time.Time
	// pos is the highest number that was read.
	pos int64
	// unsettled are the numbers up to pos without an outcome. What of them this
	// lease has still to read is in backlog.
	unsettled, backlog numset.Set
	// out are the parked messages that this lease handed out and that were not
	// settled since, or were returned.
	out map[int64]bool
	// settles counts the settles that are over, so that a read can tell whether
	// one came between.
	settles int
}

var _ relay.Lease = (*lease)(nil)

const (
	sqlReadCursor = `SELECT token, owner, expires > ` + sqlNow + `, expires > ` + sqlNow + ` + 86400000000 + ?3, pos, unsettled
	FROM postrider_cursor WHERE route = ?1 AND shard = ?2`
	// A new cursor has a token that no lease of an earlier one had.
	sqlNewCursor = `INSERT INTO postrider_cursor (route, shard, token, owner, expires, started, pos, unsettled, topics, topics_from)
	VALUES (?1, ?2, ` + sqlNow + `, '', 0, ?3, ?4, ?5, ?6, ?7)`
	sqlTakeCursor = `UPDATE postrider_cursor SET token = token + 1, owner = ?1, expires = ` + sqlNow + ` + ?2,
	topics_from = CASE WHEN topics = ?5 THEN topics_from ELSE pos END, topics = ?5,
	deaths = CASE WHEN expires = 0 THEN 0 WHEN ?6 AND owner = ?1 THEN deaths ELSE deaths + 1 END
	WHERE route = ?3 AND shard = ?4 RETURNING token, deaths, started, topics_from, ` + sqlNow
	// sqlGiveUp lets the next owner in and keeps the old token from settling.
	sqlGiveUp = `UPDATE postrider_cursor SET token = token + 1, expires = 0 WHERE route = ? AND shard = ? AND token = ?`
	// sqlLastNumber is the highest number that a shard's log ever had.
	sqlLastNumber = `SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?), 0)`
)

// Acquire takes the lease of one shard of one route.
func (s *Store) Acquire(ctx context.Context, claim relay.Claim) (relay.Lease, error) {
	match, err := claim.Validate(s.shards)
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: acquire: %w", err)
	}
	l := &lease{store: s, claim: claim, match: match, sql: queriesOf(claim.Shard), out: map[int64]bool{}, interval: minInterval}
	if err := checkUsable(ctx, s.reads); err != nil {
		return nil, fmt.Errorf("sqlitestore: acquire: %w", err)
	}
	// Look before asking for the write lock: relays that wait for a lease must
	// not get in the way of those that write.
	if c, err := readCursor(ctx, s.reads, claim); err != nil {
		return nil, fmt.Errorf("sqlitestore: acquire: %w", err)
	} else if c.absurd && c.owner != claim.Owner {
		return nil, fmt.Errorf("sqlitestore: acquire: %q has shard %d of route %q for longer than relays ask for; if none has it: UPDATE postrider_cursor SET expires = 0 WHERE route = '%s' AND shard = %d",
			c.owner, claim.Shard, claim.Route, strings.ReplaceAll(claim.Route, "'", "''"), claim.Shard)
	} else if c.held && c.owner != claim.Owner {
		s.remember(&claim, nil)
		return nil, fmt.Errorf("sqlitestore: acquire: %q has it: %w", c.owner, relay.ErrHeld)
	}
	before := time.Now()
	if err := inTx(ctx, s.app, func(tx *sql.Tx) error { return l.take(ctx, tx) }); err != nil {
		return nil, fmt.Errorf("sqlitestore: acquire: %w", err)
	}
	s.remember(&claim, nil)
	l.deadline = before.Add(claim.TTL)
	return l, nil
}

// cursor is the row of one shard of one route.
type cursor struct {
	exists    bool
	token     int64
	owner     string
	held      bool
	absurd    bool // for longer than relays ask for
	pos       int64
	unsettled string
}

func readCursor(ctx context.Context, q querier, claim relay.Claim) (cursor, error) {
	c := cursor{exists: true}
	err := q.QueryRowContext(ctx, sqlReadCursor, claim.Route, claim.Shard, claim.TTL.Microseconds()).Scan(&c.token, &c.owner, &c.held, &c.absurd, &c.pos, &c.unsettled)
	if errors.Is(err, sql.ErrNoRows) {
		return cursor{}, nil
	}
	if err != nil {
		return cursor{}, fmt.Errorf("read the cursor: %w", err)
	}
	return c, nil
}

// take makes the lease this owner's and loads its state, all in one transaction.
func (l *lease) take(ctx context.Context, tx *sql.Tx) error {
	c, err := readCursor(ctx, tx, l.claim)
	if err != nil {
		return err
	}
	if c.held && c.owner != l.claim.Owner {
		return fmt.Errorf("%q has it: %w", c.owner, relay.ErrHeld)
	}
	topics, err := json.Marshal(l.claim.Topics)
	if err != nil {
		return fmt.Errorf("encode the topics: %w", err)
	}
	var last int64
	if err := tx.QueryRowContext(ctx, sqlLastNumber, logTable(l.claim.Shard)).Scan(&last); err != nil {
		return fmt.Errorf("read the last number of the log: %w", err)
	}
	if !c.exists {
		at, err := l.begin(ctx, tx, last)
		if err != nil {
			return err
		}
		c.pos, c.unsettled = at.pos, at.unsettled
		if _, err := tx.ExecContext(ctx, sqlNewCursor, l.claim.Route, l.claim.Shard, at.started, at.pos, at.unsettled, string(topics), at.topicsFrom); err != nil {
			return fmt.Errorf("make the cursor: %w", err)
		}
	}
	if c.pos > last {
		table := logTable(l.claim.Shard)
		return fmt.Errorf("route %q has read shard %d up to number %d, but the log only ever had %d: it was reset or replaced, and new messages would be skipped. "+
			"If what it has by now is to be sent: UPDATE postrider_cursor SET pos = 0, unsettled = '[]' WHERE shard = %d; otherwise: "+
			"DELETE FROM sqlite_sequence WHERE name = '%s'; INSERT INTO sqlite_sequence VALUES ('%s', %d)",
			l.claim.Route, l.claim.Shard, c.pos, last, l.claim.Shard, table, table, c.pos)
	}
	if l.unsettled, err = decodeNumbers(c.unsettled); err != nil {
		return fmt.Errorf("the cursor of route %q, shard %d, is damaged: %w", l.claim.Route, l.claim.Shard, err)
	}
	// Others than it has passed it cannot have, unless somebody changed them by
	// hand: those are read as new ones.
	l.unsettled.Remove(math.MinInt64, 0)
	l.unsettled.Remove(c.pos+1, math.MaxInt64)
	l.pos, l.known, l.backlog = c.pos, c.pos, l.unsettled.Clone()
	err = tx.QueryRowContext(ctx, sqlTakeCursor, l.claim.Owner, leaseMicros(l.claim.TTL), l.claim.Route, l.claim.Shard, string(topics), l.claim.Alive).Scan(&l.token, &l.deaths, &l.stood.started, &l.stood.topicsFrom, &l.taken)
	if err != nil {
		return fmt.Errorf("take the cursor: %w", err)
	}
	l.stood.pos, l.stood.unsettled, l.stood.taken = c.pos, encodeNumbers(l.unsettled), l.taken
	l.closed, err = loadKeys(ctx, tx, &l.claim)
	return err
}

// leaseMicros rounds a lease up, since the clock ticks in milliseconds: it must
// not end in the database before it ends for its owner.
func leaseMicros(ttl time.Duration) int64 { return ttl.Microseconds() + 1000 }

// ClosedKeys are the keys with parked messages in their way when the lease was
// taken.
func (l *lease) ClosedKeys() map[string]int { return l.closed }

// Deaths implements relay.DeathCounter.
func (l *lease) Deaths() int { return l.deaths }

// Survived implements relay.DeathCounter.
func (l *lease) Survived() { l.survived = true }

// Deadline is when the lease ends, on this process's clock.
func (l *lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Close gives the lease up, if it is still this one's.
func (l *lease) Close(ctx context.Context) error {
	err := inTx(ctx, l.store.app, func(tx *sql.Tx) error {
		l.gone = false
		result, err := tx.ExecContext(ctx, sqlGiveUp, l.claim.Route, l.claim.Shard, l.token)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err == nil && n == 0 {
			_ = l.lost(ctx, tx) // whether it is gone
		}
		return err
	})
	if l.gone {
		l.store.remember(&l.claim, &l.stood)
	}
	if err != nil {
		return fmt.Errorf("sqlitestore: give up shard %d of route %q: %w", l.claim.Shard, l.claim.Route, err)
	}
	return nil
}

// inTx runs fn in a transaction.
func inTx(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// encodeNumbers writes a set as [[first,last],…].
func encodeNumbers(s numset.Set) string {
	ranges := make([][2]int64, 0, len(s.Ranges()))
	for _, r := range s.Ranges() {
		ranges = append(ranges, [2]int64{r.First, r.Last})
	}
	b, err := json.Marshal(ranges)
	if err != nil {
		panic(err) // integers always encode
	}
	return string(b)
}

func decodeNumbers(text string) (numset.Set, error) {
	var ranges [][2]int64
	if err := json.Unmarshal([]byte(text), &ranges); err != nil {
		return numset.Set{}, fmt.Errorf("decode its unsettled numbers: %w", err)
	}
	var s numset.Set
	for _, r := range ranges {
		s.Add(r[0], r[1])
	}
	return s, nil
}
