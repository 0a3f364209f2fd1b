package relay

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postrider/postrider/outbox"
)

const (
	// The calls that may be made share what is ready, in batches of these
	// sizes; ten is what the commonest brokers take in one request.
	smallestBatch = 10
	largestBatch  = 500
)

// route is one Route at work: its sessions, one for each shard held, and the
// workers that publish for all of them.
type route struct {
	Route
	relay   *Relay
	log     *slog.Logger
	keyed   bool // order: key
	page    int  // most messages to receive at once
	pile    int  // so many outcomes are settled without waiting for more
	budget  *budget
	limiter *rate.Limiter // nil: no limit
	portion *portion

	resolver outbox.Resolver // nil: all messages go to the same destination
	workers  sync.WaitGroup

	mu       sync.Mutex
	work     sync.Cond // on mu: there may be something to publish
	running  int       // workers
	idle     int       // of them, waiting for something
	closed   bool      // no more sessions will come
	sessions []*session

	destinations map[string]*destination
	sweepAt      int                       // so many of them are too many
	runnable     queue[*destination]       // those with something to publish
	calls        int                       // Publish calls running
	publishing   int                       // messages in them
	probing      int                       // calls that are probes
	stuck        map[*destination]struct{} // those that are away or slow
	waiting      map[*destination]struct{} // those for which something can be called back
	parking      parking

	clock    storeClock
	failures failures
	failing  map[int]ShardFailure // by shard
	stats    RouteStats
}

func newRoute(relay *Relay, config Route, shards int) *route {
	limits := relay.config.Limits
	routes := len(relay.config.Routes)
	// At least two messages for each shard, so that shards that wait for
	// something to receive leave room for the others.
	messages := max(limits.InFlightMessages/routes, 2*shards)
	r := &route{
		Route: config, relay: relay, log: relay.config.Logger.With("route", config.Name),
		keyed:  config.Order == OrderKey,
		page:   min(messages/(2*shards), largestPage),
		pile:   max(min(messages/(2*shards), 2000), 1),
		budget: newBudget(messages, limits.InFlightBytes/int64(routes), shards),
		stats: RouteStats{Name: config.Name, Limits: Limits{
			InFlightMessages: messages, InFlightBytes: limits.InFlightBytes / int64(routes), ParkedPending: max(limits.ParkedPending/routes, 1),
		}},
		failing: make(map[int]ShardFailure),
		portion: newPortion(shards),
	}
	r.work.L = &r.mu
	r.destinations, r.sweepAt, r.stuck = make(map[string]*destination), mostKnown, make(map[*destination]struct{})
	r.waiting = make(map[*destination]struct{})
	if resolver, ok := capability[outbox.Resolver](config.Publisher); ok {
		r.resolver = resolver
		r.budget.stalled = r.relieve
	}
	r.parking.most = r.stats.Limits.ParkedPending
	if config.Rate > 0 {
		r.limiter = rate.NewLimiter(rate.Limit(config.Rate), max(1, int(config.Rate/10)))
	}
	return r
}

// enter makes a session's messages available to the workers.
func (r *route) enter(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions = append(r.sessions, s)
	r.stats.ShardsHeld++
}

// leave takes a session away from the workers. What they are publishing for
// it goes on; s.quiet tells when that has ended.
func (r *route) leave(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions = slices.DeleteFunc(r.sessions, func(other *session) bool { return other == s })
	r.stats.ShardsHeld--
	s.ending = true
	s.leave()
	if s.publishing == 0 {
		close(s.quiet)
	}
}

// close sends the workers home.
func (r *route) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, d := range r.destinations {
		d.breaker.stop()
	}
	r.work.Broadcast()
}

// kick lets what the session has in hand go on. The caller holds mu.
func (r *route) kick(s *session) {
	now := time.Now()
	if s.late && s.mayPublish(now) { // the lease was renewed
		s.late = false
		for d := range s.outlets {
			d.enqueue()
		}
	}
	r.review(now)
	r.rouse()
}

// rouse finds a worker for what may be published; that one finds the next. The
// caller holds mu.
func (r *route) rouse() {
	switch {
	case r.runnable.len() == 0 || r.closed || r.calls >= r.crew():
	case r.idle > 0:
		r.work.Signal()
	case r.running < r.crew():
		r.running++
		r.workers.Go(r.worker)
	}
}

// crew is how many calls may run at a time.
func (r *route) crew() int {
	if r.resolver == nil {
		return r.Concurrency
	}
	return max(8*r.Concurrency, mostCalls)
}

// batch is what one Publish call gets. All its messages are of one session and
// go to one destination.
type batch struct {
	outlet   *outlet
	items    []*item
	solo     bool
	probe    bool
	counted  bool // among the route's probes
	closings int  // of the breaker when it was taken
	began    time.Time
	deadline time.Time // of the lease
	passes   uint64    // of the destination when it was taken
	openings int       // of its breaker
	cut      bool      // it got less time than it should have
}

// worker publishes until the route is closed, or there is little to do.
func (r *route) worker() {
	for b := r.next(); b != nil; b = r.next() {
		r.publish(b)
	}
}

// next waits for something to publish; nil if the worker is not needed any more.
func (r *route) next() *batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed {
		if b := r.take(time.Now()); b != nil {
			r.rouse()
			return b
		}
		if r.idle >= r.Concurrency {
			break
		}
		r.idle++
		r.work.Wait()
		r.idle--
	}
	r.running--
	return nil
}

// take returns the next batch, or nil if nothing may be published now. The
// destinations take turns.
func (r *route) take(now time.Time) *batch {
	if r.calls >= r.crew() {
		return nil
	}
	for range r.runnable.len() {
		d := r.runnable.pop()
		d.queued = false
		if b := d.take(now); b != nil {
			d.enqueue()
			return b
		}
	}
	return nil
}

func (r *route) newBatch(o *outlet, items []*item, b batch, now time.Time) *batch {
	d := o.to
	o.s.publishing += len(items)
	d.publishing += len(items)
	r.publishing += len(items)
	r.calls++
	if b.probe {
		r.probing++
	}
	d.used = now
	b.began, b.counted, b.closings = now, b.probe, d.breaker.closings
	b.outlet, b.items, b.deadline, b.passes, b.openings = o, items, o.s.deadline, d.passes, d.breaker.openings
	d.calls = append(d.calls, &b)
	return &b
}

// expire gives a message its outcome if its time is over.
func (s *session) expire(it *item, now time.Time) bool {
	m := &it.delivery.Message
	if m.Expires.IsZero() || !s.r.clock.expired(m.Expires, now) {
		return false
	}
	s.refused(it, Outcome{State: outbox.StateExpired, Attempts: it.delivery.Attempts})
	signal(s.wake)
	return true
}

// mayPublish reports whether the session's lease allows a publish to begin.
func (s *session) mayPublish(now time.Time) bool {
	return !s.ending && !s.spoiled && s.r.publishTime(s.deadline, now) > 0
}

// publishTime is how long a publish that begins now may take: until a little
// before the lease ends, by the monotonic and by the wall clock, which a
// machine that slept disagree about.
func (r *route) publishTime(deadline, now time.Time) time.Duration {
	left := min(deadline.Sub(now), deadline.Round(0).Sub(now.Round(0)))
	return min(left-leaseMargin(r.relay.config.Lease), r.PublishTimeout)
}

// putBack returns a batch that was not published.
func (r *route) putBack(b *batch) {
	o, d := b.outlet, b.outlet.to
	if b.solo {
		d.soloing--
		o.solo.unpop(b.items)
		if !o.gone {
			d.alone += len(b.items)
		}
	} else {
		o.unpop(b.items)
	}
	if b.probe && b.openings == d.breaker.openings {
		d.breaker.probing, d.breaker.checking = false, false
	}
	r.left(b)
}

// left notes that nothing of the batch is being published any more.
func (r *route) left(b *batch) {
	s, d := b.outlet.s, b.outlet.to
	s.publishing -= len(b.items)
	d.publishing -= len(b.items)
	r.publishing -= len(b.items)
	d.calls = slices.DeleteFunc(d.calls, func(other *batch) bool { return other == b })
	r.calls--
	if d.behind {
		d.callEnded(time.Now())
	}
	if b.counted {
		r.probing--
	}
	d.enqueue()
	if s.ending && s.publishing == 0 {
		close(s.quiet)
	}
}

// waitForRate waits until the route's rate allows n more messages; false if
// the session ended before.
func (r *route) waitForRate(ctx context.Context, n int) bool {
	if r.limiter == nil {
		return true
	}
	begun := time.Now()
	err := r.limiter.WaitN(ctx, n)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.RateWait += time.Since(begun)
	return err == nil
}
