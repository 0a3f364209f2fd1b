package poll

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/outbox"
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
	// youngGap is how long missing numbers stay in the cursor's row before
	// they get a row of their own; most are gone by then.
	youngGap = time.Second
	// lastNumber is the largest number that is read: of the one after it the
	// next number and the length of a range would not fit.
	lastNumber = math.MaxInt64 - 1
	// smallGroup is how many ranges the cursor's row holds of one group.
	smallGroup = 50
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
	nextGuard  time.Time
	file       int64 // of the sequence; 0: not known yet
	nextHeal   time.Time
	healed     string // the key up to which was looked for ones that wait for nothing
	nextLocks  time.Time

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
	return l.cursor.Close(ctx)
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

// wait lets the next poll pass, and probes what is missing.
func (l *lease) wait(ctx context.Context, max int) error {
	tick, err := l.watch.next(ctx)
	l.polled = time.Now()
	if err != nil {
		return err
	}
	if err := l.watchOver(ctx, tick); err != nil {
		return err
	}
	l.mu.Lock()
	missing, behind := !l.gaps.empty(), tick.tails[l.reader.shard] < l.pos
	if !behind {
		l.bounds.hold(tick.began)
	}
	l.mu.Unlock()
	if behind {
		// The poll may have begun before the last page was read, for another
		// lease; only a tail that is read now can show that numbers are gone.
		if err := l.readPage(ctx, max); err != nil {
			return err
		}
		return l.checkTail(ctx)
	}
	l.tail = min(tick.tails[l.reader.shard], lastNumber)
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

// behind reports whether numbers are known to be drawn that were not read.
func (l *lease) behind() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pos < l.tail
}

// readPage reads the next rows, and with them the missing numbers while those
// are few. The tail was read before.
func (l *lease) readPage(ctx context.Context, max int) error {
	limit := min(max, l.store.cfg.PageSize)
	l.mu.Lock()
	pos := l.pos
	inline := l.gaps.total() <= int64(l.store.cfg.InlineGaps)
	var numbers []int64
	if inline {
		all := l.gaps.all()
		numbers = slices.Collect(all.All())
	}
	l.mu.Unlock()

	got, err := l.reader.read(ctx, l.reader.pageSQL, numbers, numset.Range{First: pos + 1, Last: lastNumber}, limit)
	if err != nil {
		return err
	}
	split, _ := slices.BinarySearchFunc(got.rows, pos+1, func(d relay.Delivery, n int64) int { return cmp.Compare(d.Seq, n) })
	late, fresh, seen := got.rows[:split], got.rows[split:], got.seen
	if n := len(fresh); n > 0 && fresh[n-1].Seq-pos > farJump && fresh[n-1].Seq-l.tail > farJump {
		if err := l.store.guard(ctx, l.reader.shard); err != nil {
			return err
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if inline {
		l.found(late)
		if got.cut && len(fresh) == 0 {
			return nil // not all of them were looked for
		}
		l.gaps.probed(seen, l.tail)
	}
	next := page{fresh, got.more, seen}
	if !inline && l.gaps.worthProbing(seen, l.tail) {
		l.startPassLocked(next)
		return nil
	}
	l.advance(next)
	return nil
}

// found hands rows out whose numbers were missing.
func (l *lease) found(late []relay.Delivery) {
	for i := range late {
		l.gaps.remove(late[i].Seq)
	}
	l.hand(late)
}

// page is the next rows of the log, as one statement saw them.
type page struct {
	rows []relay.Delivery
	full bool // there may be more
	seen *snapshot
}

// advance hands the rows of the page out and moves the position past them and,
// if the page was not full, to the tail. What is not among the rows is missing.
func (l *lease) advance(p page) {
	end := l.pos
	var missing numset.Set
	for i := range p.rows {
		missing.Add(end+1, p.rows[i].Seq-1)
		end = p.rows[i].Seq
	}
	if !p.full {
		missing.Add(end+1, l.tail)
		end = max(end, l.tail)
	}
	l.pos = end
	l.gaps.add(missing, p.seen)
	l.hand(p.rows)
}

// remembering is match without asking again for the topic of the row before.
// For one goroutine at a time.
func remembering(match func(topic string) bool) func(topic string) bool {
	var last string // no topic is empty
	matches := false
	return func(topic string) bool {
		if topic != last {
			last, matches = topic, match(topic)
		}
		return matches
	}
}

// hand puts rows that match the route's topics in line; the others are done.
func (l *lease) hand(rows []relay.Delivery) {
	n := 0
	var run numset.Range // of numbers that are held
	for i := range rows {
		if !l.match(rows[i].Message.Topic) {
			continue
		}
		if n != i {
			rows[n] = rows[i]
		}
		seq := rows[n].Seq
		rows[n].Again = seq <= l.cursor.Pos
		if n > 0 && seq == run.Last+1 {
			run.Last = seq
		} else {
			if n > 0 {
				l.held.Add(run.First, run.Last)
			}
			run = numset.Range{First: seq, Last: seq}
		}
		n++
	}
	if n == 0 {
		return
	}
	l.held.Add(run.First, run.Last)
	clear(rows[n:])
	if rows = rows[:n]; len(l.ready) == 0 {
		l.ready = rows
	} else {
		l.ready = append(l.ready, rows...)
	}
}

// Settle records outcomes and the position, and renews the lease.
func (l *lease) Settle(ctx context.Context, outcomes []relay.Outcome) error {
	l.mu.Lock()
	settled := settledRanges(outcomes)
	progress := pgstore.Progress{Pos: l.pos, Unsettled: l.held.Clone(), Gaps: map[int64]numset.Set{}, Checked: l.bounds.good.pos, CheckedXid: l.bounds.good.xid}
	for _, r := range settled {
		progress.Unsettled.Remove(r.First, r.Last)
	}
	for _, id := range l.gaps.gone {
		progress.Gaps[id] = numset.Set{}
	}
	groups := slices.Clone(l.gaps.groups)
	for _, g := range groups {
		l.saveGroup(g, &progress)
	}
	gone := len(l.gaps.gone)
	returns := false
	for i := range outcomes {
		returns = returns || outcomes[i].Delivery.Parked && outcomes[i].State == outbox.StateBlocked
	}
	if returns {
		l.returns++
	}
	l.mu.Unlock()

	xid, err := l.cursor.Settle(ctx, progress, outcomes)
	if returns {
		l.mu.Lock()
		l.returns++
		l.mu.Unlock()
	}
	if err != nil {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = l.cursor.Deadline()
	l.bounds.last = bound{progress.Pos, xid, time.Now()}
	for _, r := range settled {
		l.held.Remove(r.First, r.Last)
	}
	for i := range outcomes {
		o := &outcomes[i]
		if o.Returned() {
			continue
		}
		if o.Kept {
			l.parked[o.Delivery.Seq] = struct{}{} // it stays in hand
		} else if o.Delivery.Parked {
			delete(l.parked, o.Delivery.Seq)
		}
		if o.Delivery.Parked || o.State != outbox.StateSent {
			l.wake = true
		}
	}
	l.gaps.gone = l.gaps.gone[gone:]
	for _, g := range groups {
		if saved, ok := progress.Gaps[g.id]; ok {
			g.saved = saved
		}
		if g.fence == 0 {
			g.fence, g.fenced = xid, time.Now()
		}
	}
	return nil
}

// saveGroup puts a group where it belongs: into the cursor's row while it is
// young and small, afterwards into a row of its own, written when it changes.
func (l *lease) saveGroup(g *group, p *pgstore.Progress) {
	if g.saved.Empty() && time.Since(g.found) < youngGap && len(g.numbers.Ranges()) <= smallGroup {
		for _, r := range g.numbers.Ranges() {
			p.Unsettled.Add(r.First, r.Last)
		}
		return
	}
	if !slices.Equal(g.saved.Ranges(), g.numbers.Ranges()) {
		p.Gaps[g.id] = g.numbers.Clone()
	}
}

// settledRanges are the numbers of the log that have an outcome.
func settledRanges(outcomes []relay.Outcome) []numset.Range {
	numbers := make([]int64, 0, len(outcomes))
	for i := range outcomes {
		if o := &outcomes[i]; !o.Delivery.Parked && !o.Returned() {
			numbers = append(numbers, o.Delivery.Seq)
		}
	}
	slices.Sort(numbers)
	var ranges []numset.Range
	for _, n := range numbers {
		if last := len(ranges) - 1; last >= 0 && ranges[last].Last+1 >= n {
			ranges[last].Last = n
		} else {
			ranges = append(ranges, numset.Range{First: n, Last: n})
		}
	}
	return ranges
}
