package poll

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgstore"
)

const (
	// parkedPoll bounds how long a change that an operator makes to a parked
	// message goes unnoticed.
	parkedPoll = time.Second
	// maxParkedOut is how many parked messages are out at a time, maxAtOnceOut
	// how many of them when one is taken that did not wait for a time.
	maxParkedOut = 1000
	maxAtOnceOut = 750
	// longestUnpolled is how long parked messages that are due all the time
	// keep new ones from being noticed.
	longestUnpolled = 50 * time.Millisecond
	// guardEvery is how often it is looked at what somebody may have changed about
	// the log; what ALTER SEQUENCE changes is noticed by the next poll.
	guardEvery = 10 * time.Second
	// healEvery is how often keys are looked for that wait for nothing.
	healEvery = time.Minute
	// lastNumber is the largest number that is read: of the one after it the
	// next number and the length of a range would not fit.
	lastNumber = math.MaxInt64 - 1
)

// lease reads one shard of one route. See relay.Lease for who may call what.
type lease struct {
	store  *Store
	watch  *watch
	match  func(string) bool
	cursor *pgstore.Cursor
	reader *reader
	log    string

	// Receive's own.
	ready      []relay.Delivery // read and not handed out yet
	pass       *pass            // looks for many missing numbers
	tail       int64            // the highest number known to be drawn
	nextParked time.Time
	logNext    bool      // parked messages had their turn
	polled     time.Time // when it last asked for new numbers
	crowded    bool      // more is due at once than was read
	timed      bool      // what waited for a time was read last
	quiet      bool      // nothing is parked that will be due before nextParked
	nextGuard  time.Time
	file       int64 // of the sequence; 0: not known yet
	nextHeal   time.Time
	healed     string // the key up to which was looked for ones that wait for nothing
	nextLocks  time.Time

	// The watch's, under its lock; it reads what is Receive's while that waits.
	calls  chan call // of one; empty while the lease waits
	asks   bool      // this one asks for all
	joined int64     // how many statements were begun when it began to wait

	mu       sync.Mutex
	deadline time.Time
	pos      int64
	held     numset.Set // numbers of the log that were read and not settled
	gaps     gaps
	parked   map[int64]struct{} // numbers of parked messages handed out
	bounds   bounds
	returns  int  // of parked messages given back as blocked: settles begun and ended, so odd while one is under way
	wake     bool // the parked set has changed
}

func newLease(s *Store, w *watch, claim relay.Claim, match func(string) bool, c *pgstore.Cursor) *lease {
	l := &lease{
		store: s, watch: w, match: remembering(match), cursor: c,
		reader:   newReader(s.cfg.Pool, s.cfg.Schema, claim.Route, claim.Shard, c.Token()),
		log:      s.cfg.Schema.Log(claim.Shard),
		pos:      c.Pos,
		deadline: c.Deadline(),
		parked:   map[int64]struct{}{},
		calls:    make(chan call, 1),
	}
	// What was unsettled is missing until it is read again.
	for id, numbers := range c.Gaps {
		l.gaps.load(id, numbers)
	}
	l.gaps.add(c.Unsettled, nil)
	w.enter(c.Token())
	return l
}

func (l *lease) ClosedKeys() map[string]int { return l.cursor.Closed }

// Deaths implements relay.DeathCounter.
func (l *lease) Deaths() int { return l.cursor.Deaths() }

// Survived implements relay.DeathCounter.
func (l *lease) Survived() { l.cursor.Survived() }

func (l *lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

func (l *lease) Close(ctx context.Context) error {
	l.watch.leave(l.cursor.Token())
	err := l.cursor.Close(ctx)
	l.store.remember(l.place(), l.cursor.Stood())
	return err
}

func (l *lease) place() pgstore.RouteShard {
	return pgstore.RouteShard{Route: l.reader.route, Shard: l.reader.shard}
}

// checkTail refuses a sequence that is behind what was read of it: new messages
// would get numbers that count as done.
func (l *lease) checkTail(ctx context.Context) error {
	shard := l.reader.shard
	tails, err := pgstore.Tails(ctx, l.store.cfg.Pool, l.store.cfg.Schema, []int{shard})
	if err != nil {
		return err
	}
	l.mu.Lock()
	pos := l.pos
	l.mu.Unlock()
	if tail := tails[shard]; tail < pos {
		return l.store.cfg.Schema.WentBack(l.reader.route, shard, tail, pos)
	}
	return nil
}

// Receive works through what is waiting, in this order: rows that were read
// already, missing numbers, and parked messages and the log's next page in turn,
// so that ones that fail again and again do not keep the others waiting.
func (l *lease) Receive(ctx context.Context, max int) ([]relay.Delivery, error) {
	for {
		if len(l.ready) > 0 {
			n := min(max, len(l.ready))
			out := l.ready[:n:n]
			l.ready = l.ready[n:]
			return out, nil
		}
		var err error
		switch {
		case l.pass != nil:
			err = l.stepPass(ctx)
		case l.needsFirstPass():
			l.startPass()
		case l.logNext && time.Since(l.polled) > longestUnpolled:
			err = l.wait(ctx, max)
		case l.parkedDue() && !(l.logNext && l.behind()):
			err = l.readParked(ctx, max)
			l.logNext = len(l.ready) > 0
		case l.behind():
			l.logNext = false
			err = l.readPage(ctx, max)
		default:
			err = l.wait(ctx, max)
		}
		if err != nil {
			return nil, err
		}
	}
}

// wait waits for a poll that concerns the lease, and probes what is missing.
func (l *lease) wait(ctx context.Context, max int) error {
	tick, err := l.watch.next(ctx, l)
	l.polled = time.Now()
	if err != nil {
		return err
	}
	if err := l.watchOver(ctx, tick); err != nil {
		return err
	}
	l.mu.Lock()
	missing, behind := !l.gaps.empty(), tick.tail < l.pos
	l.mu.Unlock()
	if behind {
		// Only a tail that is read now can show that numbers are gone, and the page
		// tells why they may be.
		if err := l.readPage(ctx, max); err != nil {
			return err
		}
		return l.checkTail(ctx)
	}
	l.tail = min(tick.tail, lastNumber)
	if missing {
		if err := l.askLocks(ctx); err != nil {
			return err
		}
	}
	if missing || tick.suspect {
		return l.readPage(ctx, max)
	}
	return nil
}

// concerned reports whether there is something to do for the lease, which waits.
// fresh: the poll began after that did, so that its tail is no older than what
// was read.
func (l *lease) concerned(t tick, fresh bool, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.tail >= l.pos {
		l.bounds.hold(t.began)
	} else if !fresh {
		return false
	}
	return t.tail != l.pos || t.suspect || t.file != l.file || !l.gaps.empty() ||
		now.After(l.nextGuard) || now.After(l.nextHeal) || l.parkedDueAt(now)
}

// behind reports whether numbers are known to be drawn that were not read.
func (l *lease) behind() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pos < l.tail
}
