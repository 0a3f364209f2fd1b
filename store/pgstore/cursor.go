package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/relay"
)

const (
	heldSQL = `SELECT lease_until > clock_timestamp() AND owner <> $3, lease_until > clock_timestamp() + interval '1 day' + $4 * interval '1 microsecond',
			owner, lease_until::text FROM {s}.cursor WHERE route = $1 AND shard = $2`

	acquireSQL = `INSERT INTO {s}.cursor AS c (route, shard, pos, token, owner, lease_until, topics, topics_from, started)
		VALUES ($1, $2, 0, $3, $4, clock_timestamp() + $5 * interval '1 microsecond', $6, 0, 0)
		ON CONFLICT (route, shard) DO UPDATE SET token = excluded.token, owner = excluded.owner, lease_until = excluded.lease_until,
			topics = excluded.topics, topics_from = CASE WHEN c.topics = excluded.topics THEN c.topics_from ELSE c.pos END,
			deaths = CASE WHEN c.lease_until = '-infinity' THEN 0 WHEN $7 AND c.owner = excluded.owner THEN c.deaths ELSE c.deaths + 1 END,
			checked = least(c.checked, c.pos)
		WHERE c.lease_until <= clock_timestamp() OR c.owner = excluded.owner
		RETURNING ctid::text, pos, unsettled::text, xmax = 0, deaths, clock_timestamp(), started, topics_from`

	// A takeover must not be lost by a crash where the server's own setting
	// would let it: the old relay's token would hold again.
	durableSQL = `SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'`

	markSQL = `INSERT INTO {s}.mark (route, shard, token) VALUES ($1, $2, $3)
		ON CONFLICT (route, shard) DO UPDATE SET token = excluded.token`
	loadGapsSQL   = `SELECT id, numbers::text FROM {s}.gap WHERE route = $1 AND shard = $2`
	loadClosedSQL = `SELECT key, count(*) FROM (
			SELECT key FROM {s}.parked WHERE route = $1 AND shard = $2 AND state = 'blocked' AND closes
			UNION ALL SELECT key FROM {s}.parked WHERE route = $1 AND shard = $2 AND state <> 'blocked' AND closes) AS p GROUP BY key`

	// Without hold nothing that failed keeps its key closed.
	letGoSQL = `UPDATE {s}.parked SET closes = false, due_at = NULL
		WHERE route = $1 AND shard = $2 AND closes AND state <> 'blocked' AND state = 'failed'`

	closeSQL = `UPDATE {s}.cursor SET lease_until = '-infinity', token = gen_random_uuid() WHERE route = $1 AND shard = $2 AND token = $3`
	// The mark of a lease whose row is gone stays, to tell of it.
	unmarkSQL = `DELETE FROM {s}.mark WHERE route = $1 AND shard = $2 AND token = $3
		AND EXISTS (SELECT FROM {s}.cursor WHERE route = $1 AND shard = $2)`
)

// Cursor is the lease on one shard of one route, and what was loaded under it.
// It is for the sources that read the log (source/poll). Settle and Close are
// for one goroutine at a time; Deadline is safe for concurrent use with them
// only under the caller's lock.
type Cursor struct {
	db       DB
	schema   Schema
	claim    relay.Claim
	token    uuid.UUID
	ctid     string
	deadline time.Time
	taken    time.Time // when the lease was taken, by the server's clock
	deaths   int       // of leases in a row before this one
	survived bool
	stood    Stood // as last recorded
	gone     bool  // somebody has deleted the row

	// Pos is the number up to which everything was handed out or is in
	// Unsettled or Gaps, when the lease was taken.
	Pos int64
	// Unsettled are the numbers up to Pos without an outcome, but for Gaps.
	Unsettled numset.Set
	// Gaps are groups of missing numbers by the id of the group.
	Gaps map[int64]numset.Set
	// Closed counts the parked messages that keep each key closed.
	Closed map[string]int
}

// Acquire takes the lease and loads the state. stood is the Stood of the Cursor
// that this process had before; nil: it had none. relay.ErrHeld if another owner
// has the lease. ErrNoSchema if the tables are missing.
func Acquire(ctx context.Context, db DB, schema Schema, claim relay.Claim, stood *Stood) (*Cursor, error) {
	c := &Cursor{db: db, schema: schema, claim: claim, Gaps: map[int64]numset.Set{}, Closed: map[string]int{}}
	sent := time.Now()
	var held, absurd bool
	var owner, until string
	err := db.QueryRow(ctx, schema.sql(heldSQL), claim.Route, claim.Shard, claim.Owner, claim.TTL.Microseconds()).Scan(&held, &absurd, &owner, &until)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("acquire shard %d of route %s: %w", claim.Shard, claim.Route, err)
	}
	if held && absurd {
		return nil, fmt.Errorf("acquire shard %d of route %s: %q has the lease until %s, longer than relays ask for; if none has it: "+
			"UPDATE %s SET lease_until = '-infinity' WHERE route = '%s' AND shard = %d",
			claim.Shard, claim.Route, owner, until, schema.Table("cursor"), quoteLiteral(claim.Route), claim.Shard)
	}
	if held {
		return nil, relay.ErrHeld
	}
	if c.token, err = uuid.NewRandom(); err != nil {
		return nil, fmt.Errorf("make a fencing token: %w", err)
	}
	err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return c.take(ctx, tx, stood)
	})
	if errors.Is(err, relay.ErrHeld) {
		return nil, relay.ErrHeld
	}
	if err != nil {
		return nil, fmt.Errorf("acquire shard %d of route %s: %w", claim.Shard, claim.Route, err)
	}
	c.deadline = sent.Add(claim.TTL)
	return c, nil
}

// take updates the cursor's row, which waits for a settle under the old token
// that is under way, and only then reads the state.
func (c *Cursor) take(ctx context.Context, tx pgx.Tx, stood *Stood) error {
	if _, err := tx.Exec(ctx, durableSQL); err != nil {
		return err
	}
	var unsettled string
	var created bool
	err := tx.QueryRow(ctx, c.schema.sql(acquireSQL), c.claim.Route, c.claim.Shard, c.token, c.claim.Owner, c.claim.TTL.Microseconds(), c.claim.Topics, c.claim.Alive).
		Scan(&c.ctid, &c.Pos, &unsettled, &created, &c.deaths, &c.taken, &c.stood.started, &c.stood.topicsFrom)
	if errors.Is(err, pgx.ErrNoRows) {
		return relay.ErrHeld
	}
	if err != nil {
		return err
	}
	if c.Unsettled, err = parseMultirange(unsettled); err != nil {
		return err
	}
	c.clip(&c.Unsettled)
	if created {
		if err := c.start(ctx, tx, stood); err != nil {
			return err
		}
	}
	c.stood.pos, c.stood.unsettled = c.Pos, c.Unsettled.Clone()
	if _, err := tx.Exec(ctx, c.schema.sql(markSQL), c.claim.Route, c.claim.Shard, c.token); err != nil {
		return err
	}
	return c.load(ctx, tx)
}

func (c *Cursor) load(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, c.schema.sql(loadGapsSQL), c.claim.Route, c.claim.Shard)
	if err != nil {
		return err
	}
	var id int64
	var numbers string
	_, err = pgx.ForEachRow(rows, []any{&id, &numbers}, func() error {
		set, err := parseMultirange(numbers)
		c.clip(&set)
		c.Gaps[id] = set
		return err
	})
	if err != nil {
		return err
	}
	if err := c.noteRestored(ctx, tx); err != nil {
		return err
	}
	if err := c.checkReuse(ctx, tx); err != nil {
		return err
	}
	if !c.claim.Hold {
		if _, err := tx.Exec(ctx, c.schema.sql(letGoSQL), c.claim.Route, c.claim.Shard); err != nil {
			return err
		}
	}
	rows, err = tx.Query(ctx, c.schema.sql(loadClosedSQL), c.claim.Route, c.claim.Shard)
	if err != nil {
		return err
	}
	var key string
	var count int
	var keys []string
	_, err = pgx.ForEachRow(rows, []any{&key, &count}, func() error {
		c.Closed[key] = count
		keys = append(keys, key)
		return nil
	})
	if err != nil || keys == nil {
		return err
	}
	// Hold may not be what it was for the lease before, and somebody may have
	// deleted what a key waited for.
	var batch pgx.Batch
	c.schema.queueOrder(&batch, c.claim.Route, c.claim.Shard, keys)
	return tx.SendBatch(ctx, &batch).Close()
}

// clip leaves the numbers that the cursor has passed. It has no others, unless
// somebody has changed them by hand: those are read as new ones.
func (c *Cursor) clip(numbers *numset.Set) {
	numbers.Remove(math.MinInt64, 0)
	if c.Pos < math.MaxInt64 {
		numbers.Remove(c.Pos+1, math.MaxInt64)
	}
}

// Token is what fences this lease.
func (c *Cursor) Token() uuid.UUID { return c.token }

// Deaths is how many leases in a row before this one ended without a Close and
// had not Survived.
func (c *Cursor) Deaths() int { return c.deaths }

// Survived has the next Settle begin the counting of deaths anew.
func (c *Cursor) Survived() { c.survived = true }

// Deadline is when the lease ends unless it is renewed, on this process's
// clock, counted from before the last renewal was sent.
func (c *Cursor) Deadline() time.Time { return c.deadline }

// Close gives the lease up, durably. It does nothing to one that was lost.
func (c *Cursor) Close(ctx context.Context) error {
	var batch pgx.Batch
	batch.Queue(durableSQL)
	found := false
	batch.Queue(c.schema.sql(closeSQL), c.claim.Route, c.claim.Shard, c.token).Exec(func(tag pgconn.CommandTag) error {
		found = tag.RowsAffected() > 0
		return nil
	})
	batch.Queue(c.schema.sql(unmarkSQL), c.claim.Route, c.claim.Shard, c.token)
	err := c.db.SendBatch(ctx, &batch).Close()
	if err != nil {
		return fmt.Errorf("close shard %d of route %s: %w", c.claim.Shard, c.claim.Route, err)
	}
	if c.gone = false; !found {
		_ = c.lost(ctx) // for Stood
	}
	return nil
}
