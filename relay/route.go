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
	// Workers that are free share what is ready, in batches of these sizes;
	// ten is what the commonest brokers take in one request.
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

	mu       sync.Mutex
	work     sync.Cond // on mu: there may be something to publish
	idle     int       // workers waiting for it
	closed   bool      // no more sessions will come
	sessions []*session
	turn     int // rotates over the sessions
	breaker  breaker
	passes   uint64 // how often the broker has answered for a message
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
		budget: newBudget(messages, limits.InFlightBytes/int64(routes)),
		stats:  RouteStats{Name: config.Name}, failing: make(map[int]ShardFailure),
		portion: newPortion(shards),
	}
	r.work.L = &r.mu
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
	if s.publishing == 0 {
		close(s.quiet)
	}
}

// close sends the workers home.
func (r *route) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.breaker.stop()
	r.work.Broadcast()
}

// kick wakes as many workers as ready messages are worth. The caller holds mu.
func (r *route) kick(ready int) {
	if r.breaker.open {
		ready = min(ready, 1)
	}
	for n := min(r.idle, (ready+smallestBatch-1)/smallestBatch); n > 0; n-- {
		r.work.Signal()
	}
}

// batch is what one Publish call gets. All its messages are of one session.
type batch struct {
	session  *session
	items    []*item
	solo     bool
	probe    bool
	deadline time.Time // of the lease
	passes   uint64    // of the route when it was taken
	openings int       // of its breaker
	cut      bool      // it got less time than it should have
}

// worker publishes until the route is closed.
func (r *route) worker() {
	for b := r.next(); b != nil; b = r.next() {
		r.publish(b)
	}
}

// next waits for something to publish; nil once the route is closed.
func (r *route) next() *batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed {
		if b := r.take(time.Now()); b != nil {
			return b
		}
		r.idle++
		r.work.Wait()
		r.idle--
	}
	return nil
}

// take returns the next batch, or nil if nothing may be published now.
func (r *route) take(now time.Time) *batch {
	if r.breaker.open {
		return r.takeProbe(now)
	}
	most := r.share()
	for range r.sessions {
		s := r.nextSession()
		if !s.mayPublish(now) {
			continue
		}
		// One by one goes what may hang: with half of the workers at most.
		if s.solo.len() > 0 && s.soloing < max(1, r.Concurrency/2) {
			if items := s.pull(&s.solo, 1, now); len(items) > 0 {
				s.soloing++
				return r.newBatch(s, items, batch{solo: true})
			}
		}
		if items := s.pull(&s.ready, most, now); len(items) > 0 {
			return r.newBatch(s, items, batch{})
		}
	}
	return nil
}

func (r *route) newBatch(s *session, items []*item, b batch) *batch {
	s.publishing += len(items)
	b.session, b.items, b.deadline, b.passes, b.openings = s, items, s.deadline, r.passes, r.breaker.openings
	return &b
}

func (r *route) nextSession() *session {
	r.turn++
	return r.sessions[r.turn%len(r.sessions)]
}

// share is how many messages a worker should take: all of them as long as the
// other free workers get as much.
func (r *route) share() int {
	ready := 0
	for _, s := range r.sessions {
		ready += s.ready.len()
	}
	most := largestBatch
	if r.limiter != nil {
		most = min(most, r.limiter.Burst())
	}
	return min(max((ready+r.idle)/(r.idle+1), smallestBatch), most)
}

// pull takes up to n items from a queue of the session. Those that expired
// while they waited get their outcome instead.
func (s *session) pull(q *queue, n int, now time.Time) []*item {
	items := make([]*item, 0, min(n, q.len()))
	for len(items) < n && q.len() > 0 {
		it := q.pop()
		if m := &it.delivery.Message; !m.Expires.IsZero() && s.r.clock.expired(m.Expires, now) {
			s.refused(it, Outcome{State: outbox.StateExpired, Attempts: it.delivery.Attempts})
			signal(s.wake)
			continue
		}
		items = append(items, it)
	}
	return items
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
	s := b.session
	if b.solo {
		s.soloing--
		s.solo.unpop(b.items)
	} else {
		s.ready.unpop(b.items)
	}
	if b.probe && b.openings == r.breaker.openings {
		r.breaker.probing, r.breaker.checking = false, false
	}
	r.left(b)
}

// left notes that nothing of the batch is being published any more.
func (r *route) left(b *batch) {
	s := b.session
	s.publishing -= len(b.items)
	if s.ending && s.publishing == 0 {
		close(s.quiet)
	}
}

// waitForRate waits until the route's rate allows n more messages; false if
// the session ended before.
func (r *route) waitForRate(ctx context.Context, n int) bool {
	return r.limiter == nil || r.limiter.WaitN(ctx, n) == nil
}
