package poll

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store/pgstore"
)

// watch asks for the tails of all shards in one statement, for all leases
// together, as seldom as the adaptive interval allows, and wakes those that the
// answer concerns. It has no goroutine of its own: one of the leases that wait
// asks for all of them, and when it has something to do another one goes on.
type watch struct {
	db       pgstore.DB
	schema   pgstore.Schema
	sql      string
	min, max time.Duration

	mu      sync.Mutex
	tokens  map[uuid.UUID]struct{}
	waiting []*lease
	led     bool  // one of them asks
	asked   int64 // statements that were begun

	// Of the one that asks.
	timer    *time.Timer
	args     []any // with the tokens; nil: to be made anew
	last     time.Time
	nextLook time.Time
	interval time.Duration
	seen     sight
}

// sight is what one statement saw.
type sight struct {
	tails []int64 // by shard
	files []int64
	start int64     // of the server
	marks int       // leases whose mark is there
	asked int       // leases that were asked for
	began time.Time // before the statement was sent
}

// tick is what one statement saw that may concern a lease.
type tick struct {
	tail int64
	// file tells one sequence from another: ALTER SEQUENCE, TRUNCATE … RESTART
	// IDENTITY and CREATE give one a new file. The server's start is in it, for one
	// that took another's place, with a dump of it, behind a pooler.
	file  int64
	began time.Time // before the statement was sent
	// suspect: a lease's mark is missing, so a crash may have lost commits.
	suspect bool
}

// call is what a lease that waits is woken with.
type call struct {
	ask  bool // it is its turn to ask
	tick tick
	err  error
}

const (
	// quicken is by how much the pause becomes shorter when there is something
	// new: two polls after the longest it is the shortest. One message alone costs
	// two polls more than none.
	quicken = 4

	shardSQL = `SELECT %d, ` + pgstore.TailColumn + `, pg_relation_filenode('%s'::regclass)::bigint FROM %s`
	marksSQL = ` UNION ALL SELECT -1, count(*), (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint FROM %s WHERE token = ANY ($1::text::uuid[])`
)

// textResults asks for text, which costs little where the values are numbers and
// which every protocol mode can give.
var textResults = pgx.QueryResultFormats{pgx.TextFormatCode}

func newWatch(db pgstore.DB, schema pgstore.Schema, shards int, min, max time.Duration) *watch {
	parts := make([]string, shards)
	for shard := range parts {
		sequence := schema.LogSequence(shard)
		parts[shard] = fmt.Sprintf(shardSQL, shard, strings.ReplaceAll(sequence, "'", "''"), sequence)
	}
	return &watch{db: db, schema: schema, min: min, max: max, interval: min, tokens: map[uuid.UUID]struct{}{},
		seen: sight{tails: make([]int64, shards), files: make([]int64, shards)},
		sql:  strings.Join(parts, " UNION ALL ") + fmt.Sprintf(marksSQL, schema.Table("mark"))}
}

func (w *watch) enter(token uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens[token], w.args = struct{}{}, nil
}

func (w *watch) leave(token uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.tokens, token)
	w.args = nil
}

// next waits for a statement whose answer concerns the lease.
func (w *watch) next(ctx context.Context, l *lease) (tick, error) {
	if !w.join(l) {
		select {
		case <-ctx.Done():
			w.quit(l)
			return tick{}, ctx.Err()
		case c := <-l.calls:
			if !c.ask {
				return c.tick, c.err
			}
		}
	}
	for {
		err := w.ask(ctx)
		if err != nil && ctx.Err() != nil { // the end of the one that asks is not the others'
			w.quit(l)
			return tick{}, ctx.Err()
		}
		if t, mine := w.tell(l, err); mine {
			return t, err
		}
	}
}

// join puts the lease among those that wait, and reports whether it is to ask.
func (w *watch) join(l *lease) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, l)
	l.joined = w.asked
	l.asks = !w.led
	w.led = true
	return l.asks
}

// quit takes the lease back that does not wait any more.
func (w *watch) quit(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = slices.DeleteFunc(w.waiting, func(o *lease) bool { return o == l })
	select {
	case <-l.calls: // just now
	default:
	}
	if l.asks {
		w.handOn(l)
	}
}

// handOn makes another lease ask. The caller holds mu.
func (w *watch) handOn(l *lease) {
	l.asks = false
	if w.led = len(w.waiting) > 0; w.led {
		w.waiting[0].asks = true
		w.waiting[0].calls <- call{ask: true}
	}
}

// tell wakes all leases that the answer concerns, or all if it is an error. It
// reports whether the one that asks is among them.
func (w *watch) tell(asking *lease, err error) (t tick, mine bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	seen := &w.seen
	kept := w.waiting[:0]
	for _, l := range w.waiting {
		c := call{err: err}
		if err == nil {
			shard := l.reader.shard
			c.tick = tick{seen.tails[shard], seen.files[shard] ^ seen.start, seen.began, seen.marks < seen.asked}
			if !l.concerned(c.tick, l.joined < w.asked, now) {
				kept = append(kept, l)
				continue
			}
		}
		if l == asking {
			t, mine = c.tick, true
		} else {
			l.calls <- c
		}
	}
	clear(w.waiting[len(kept):])
	w.waiting = kept
	if mine {
		w.handOn(asking)
	}
	return t, mine
}

// ask waits for the time of the next statement and runs it.
func (w *watch) ask(ctx context.Context) error {
	if wait := w.interval - time.Since(w.last); wait > 0 {
		if w.timer == nil {
			w.timer = time.NewTimer(wait)
		} else {
			w.timer.Reset(wait)
		}
		select {
		case <-ctx.Done():
			w.timer.Stop()
			return ctx.Err()
		case <-w.timer.C:
		}
	}
	moved, err := w.poll(ctx)
	if err != nil {
		return fmt.Errorf("poll the log: %w", err)
	}
	w.last = time.Now()
	if moved {
		w.interval = max(w.min, w.interval/quicken)
	} else {
		w.interval = min(w.max, 2*w.interval)
	}
	return w.lookForParked(ctx)
}

// poll runs the statement, and reports whether a sequence has moved.
func (w *watch) poll(ctx context.Context) (moved bool, err error) {
	rows, err := w.db.Query(ctx, w.sql, w.begin()...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		var row [3]int64
		for i, value := range rows.RawValues() {
			if row[i], err = strconv.ParseInt(string(value), 10, 64); err != nil {
				return false, err
			}
		}
		if shard := row[0]; shard < 0 {
			w.seen.marks, w.seen.start = int(row[1]), row[2]
		} else {
			moved = moved || w.seen.tails[shard] != row[1]
			w.seen.tails[shard], w.seen.files[shard] = row[1], row[2]
		}
	}
	return moved, rows.Err()
}

// begin takes note that a statement begins now, and returns what it is called
// with.
func (w *watch) begin() []any {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if w.args == nil {
		tokens := make([]string, 0, len(w.tokens))
		for token := range w.tokens {
			tokens = append(tokens, token.String())
		}
		w.args = []any{textResults, "{" + strings.Join(tokens, ",") + "}"}
	}
	w.seen.began, w.seen.marks, w.seen.asked = time.Now(), 0, len(w.tokens)
	return w.args
}

// lookForParked looks for parked messages that come due soon, in one statement
// for all leases that wait and knew of none.
func (w *watch) lookForParked(ctx context.Context) error {
	now := time.Now()
	if now.Before(w.nextLook) {
		return nil
	}
	w.nextLook = now.Add(parkedPoll)
	var quiet []*lease
	var of []pgstore.RouteShard
	w.mu.Lock()
	for _, l := range w.waiting {
		if l.quiet {
			quiet = append(quiet, l)
			of = append(of, l.place())
		}
	}
	w.mu.Unlock()
	if len(quiet) == 0 {
		return nil
	}
	due, err := pgstore.DueSoon(ctx, w.db, w.schema, of, parkedPoll)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, l := range quiet {
		switch {
		case !l.quiet || !slices.Contains(w.waiting, l): // it has looked itself
		case due[i]:
			l.nextParked = now
		default:
			l.nextParked = now.Add(parkedPoll)
		}
	}
	return nil
}
