package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// Every settling transaction starts by updating the cursor's row where it still
// has the token: a takeover updates the same row, so one of the two waits for
// the other and a relay that was replaced changes nothing. (Looking the token
// up in a subquery would not wait.)
const (
	fenceSet = `UPDATE {s}.cursor SET pos = $4, unsettled = $5::text::int8multirange, seen = greatest(seen, pg_snapshot_xmax(pg_current_snapshot())),
		lease_until = clock_timestamp() + $6 * interval '1 microsecond', deaths = CASE WHEN $7 THEN 0 ELSE deaths END,
		checked = CASE WHEN $9::text = '0' THEN checked ELSE $8 END, checked_xid = CASE WHEN $9::text = '0' THEN checked_xid ELSE $9::text::xid8 END
		WHERE route = $1 AND shard = $2 AND token = $3`

	// fenceSQL also hands out an id of this transaction, taken after whatever
	// was read before the call.
	fenceSQL = fenceSet + ` RETURNING ctid::text, pg_current_xact_id()::text`

	// progressSQL finds the row by its place, which stays fast when a long
	// snapshot keeps its dead versions from being cleaned up; by key they would
	// all be visited. Losing it in a crash repeats messages and loses none, so
	// it does not wait for the disk.
	progressSQL = fenceSet + ` AND ctid = $10::text::tid
		RETURNING ctid::text, pg_current_xact_id()::text, set_config('synchronous_commit', 'off', true)`

	// guarded fails the whole transaction, by dividing by zero, when the fence
	// finds no row: so a settle is one round trip.
	guardedBy  = `WITH f AS (` + fenceSet
	guardedEnd = ` RETURNING ctid::text AS place, pg_current_xact_id()::text AS xid)
		SELECT f.place, f.xid, 1 / n.n FROM (SELECT count(*) AS n FROM f) AS n LEFT JOIN f ON true`
	guardedSQL      = guardedBy + guardedEnd
	guardedPlaceSQL = guardedBy + ` AND ctid = $10::text::tid` + guardedEnd // as progressSQL

	setGapSQL = `INSERT INTO {s}.gap (route, shard, id, numbers) VALUES ($1, $2, $3, $4::text::int8multirange)
		ON CONFLICT (route, shard, id) DO UPDATE SET numbers = excluded.numbers`
	dropGapSQL = `DELETE FROM {s}.gap WHERE route = $1 AND shard = $2 AND id = $3`
)

// divisionByZero is PostgreSQL's code for it.
const divisionByZero = "22012"

// Progress is what a settle writes about the reading position.
type Progress struct {
	// Pos: every number up to it has an outcome, or is in Unsettled or a gap.
	Pos       int64
	Unsettled numset.Set
	// Gaps are the groups that changed, by their ids; an empty one is gone.
	Gaps map[int64]numset.Set
	// Checked and CheckedXid: whoever was given a number up to Checked had an id
	// below CheckedXid, unless the sequence has gone back since. CheckedXid 0:
	// nothing new is known.
	Checked    int64
	CheckedXid uint64
}

// Settle writes the progress and the outcomes in one transaction and extends
// the lease. xid is that transaction's id: greater than that of every
// transaction that had drawn a number before the call. relay.ErrFenced if the
// token is not this lease's any more; then nothing is written.
func (c *Cursor) Settle(ctx context.Context, p Progress, outcomes []relay.Outcome) (xid uint64, err error) {
	sent := time.Now()
	parking := parkingOf(outcomes, c.claim.Hold)
	if len(p.Gaps) == 0 && parking == nil {
		xid, err = c.settleProgress(ctx, p)
	} else {
		xid, err = c.settleAll(ctx, p, parking)
	}
	if errors.Is(err, relay.ErrFenced) {
		return 0, c.lost(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("settle shard %d of route %s: %w", c.claim.Shard, c.claim.Route, err)
	}
	c.deadline = sent.Add(c.claim.TTL)
	c.stood.pos, c.stood.unsettled = p.Pos, p.Unsettled
	if parking != nil && parking.twice {
		return 0, fmt.Errorf("settle shard %d of route %s: %w", c.claim.Shard, c.claim.Route, errTwice)
	}
	return xid, nil
}

// errTwice makes the relay load the state anew. It comes after the outcomes were
// recorded.
var errTwice = errors.New("a message of the log was parked already, so somebody has set the cursor back: what stands in each key's way is counted anew")

func (c *Cursor) fenceArgs(p Progress) []any {
	return []any{c.claim.Route, c.claim.Shard, c.token, p.Pos, formatMultirange(p.Unsettled), c.claim.TTL.Microseconds(), c.survived, p.Checked, strconv.FormatUint(p.CheckedXid, 10)}
}

func (c *Cursor) settleProgress(ctx context.Context, p Progress) (uint64, error) {
	var xid, off string
	args := c.fenceArgs(p)
	err := c.db.QueryRow(ctx, c.schema.sql(progressSQL), append(args, c.ctid)...).Scan(&c.ctid, &xid, &off)
	if errors.Is(err, pgx.ErrNoRows) { // the row has moved, or is another's
		err = c.db.QueryRow(ctx, c.schema.sql(fenceSQL), args...).Scan(&c.ctid, &xid)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, relay.ErrFenced
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(xid, 10, 64)
}

// settleAll looks for the cursor's row by its place first, as settleProgress
// does.
func (c *Cursor) settleAll(ctx context.Context, p Progress, parking *parking) (uint64, error) {
	args := c.fenceArgs(p)
	xid, err := c.settleBy(ctx, guardedPlaceSQL, append(args, c.ctid), p, parking)
	if errors.Is(err, relay.ErrFenced) { // the row has moved, or is another's
		xid, err = c.settleBy(ctx, guardedSQL, args, p, parking)
	}
	return xid, err
}

// settleBy sends everything as one implicit transaction: PostgreSQL commits
// what was sent before a Sync together, or nothing of it (protocol flow,
// "Pipelining").
func (c *Cursor) settleBy(ctx context.Context, fence string, args []any, p Progress, parking *parking) (uint64, error) {
	var xid, ctid string
	var batch pgx.Batch
	batch.Queue(c.schema.sql(fence), args...).QueryRow(func(row pgx.Row) error {
		var one int64
		return row.Scan(&ctid, &xid, &one)
	})
	for id, numbers := range p.Gaps {
		if numbers.Empty() {
			batch.Queue(c.schema.sql(dropGapSQL), c.claim.Route, c.claim.Shard, id)
		} else {
			batch.Queue(c.schema.sql(setGapSQL), c.claim.Route, c.claim.Shard, id, formatMultirange(numbers))
		}
	}
	if parking != nil {
		c.queueParking(&batch, parking)
	}
	err := c.db.SendBatch(ctx, &batch).Close()
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == divisionByZero {
		return 0, relay.ErrFenced
	}
	if err != nil {
		return 0, err
	}
	c.ctid = ctid
	return strconv.ParseUint(xid, 10, 64)
}

// parking is the part of some outcomes that concerns the parked set.
type parking struct {
	fromLog, fromParked parkedRows
	gone                []int64  // sent ones that leave it
	keys                []string // whose order is touched
	// twice is set when a message of the log was parked already.
	twice bool
}

// parkedRows are the columns of rows to write, in order of arrival.
type parkedRows struct {
	seqs, delays  []int64 // delays in microseconds
	states        []string
	closes, heard []bool // heard: the row says already what became of it
	attempts      []int32
	errors        []string

	// Only of what comes from the log.
	keys, topics []string
	ids          []string // as text, which every mode of pgx can send
}

func (r *parkedRows) add(o *relay.Outcome, hold bool) {
	d := &o.Delivery
	r.seqs = append(r.seqs, d.Seq)
	r.states = append(r.states, string(o.State))
	r.closes = append(r.closes, o.Closes(hold))
	r.heard = append(r.heard, d.Changed())
	r.delays = append(r.delays, o.RetryAfter.Microseconds())
	r.attempts = append(r.attempts, int32(min(o.Attempts, 1<<30)))
	r.errors = append(r.errors, errorText(o.Error))
	if !d.Parked {
		r.keys = append(r.keys, d.Message.Key)
		r.topics = append(r.topics, d.Message.Topic)
		r.ids = append(r.ids, d.Message.ID.String())
	}
}

// parkingOf is nil where all are plain messages of the log that were sent.
func parkingOf(outcomes []relay.Outcome, hold bool) *parking {
	var p parking
	touched := map[string]bool{}
	for i := range outcomes {
		o := &outcomes[i]
		d := &o.Delivery
		switch {
		case o.Returned(), o.State == outbox.StateSent && !d.Parked:
			continue
		case o.State == outbox.StateSent:
			p.gone = append(p.gone, d.Seq)
		case d.Parked:
			p.fromParked.add(o, hold)
		default:
			p.fromLog.add(o, hold)
		}
		if key := d.Message.Key; key != "" && !touched[key] {
			touched[key] = true
			p.keys = append(p.keys, key)
		}
	}
	if p.gone == nil && p.fromLog.seqs == nil && p.fromParked.seqs == nil {
		return nil
	}
	return &p
}
