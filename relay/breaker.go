package relay

import (
	"math/rand/v2"
	"time"
)

const (
	probeInitial = 100 * time.Millisecond
	probeMax     = 10 * time.Second
)

// breaker stops a route from publishing while its broker is away. While it is
// open one message at a time probes whether the broker is back, with growing
// waits between. The route's mutex guards it.
type breaker struct {
	open  bool
	since time.Time
	alarm bool
	// certain: the broker is away for sure. Otherwise messages of one call have
	// timed out, and another message will show whose fault it is.
	certain  bool
	wait     time.Duration
	probeAt  time.Time
	probing  bool // a probe is under way
	checking bool // one with another message, at once, since it is not certain
	openings int  // tells a probe whose breaker has been closed meanwhile
	timer    *time.Timer
}

// trip opens the breaker; false if it was open already.
func (b *breaker) trip(now time.Time, certain bool, wake func()) bool {
	b.certain = b.certain || certain
	if b.open {
		return false
	}
	b.open, b.since = true, now
	b.openings++
	b.wait = probeInitial
	b.schedule(now, wake)
	return true
}

// again puts the next probe off further.
func (b *breaker) again(now time.Time, wake func()) {
	b.wait = min(2*b.wait, probeMax)
	b.schedule(now, wake)
}

func (b *breaker) schedule(now time.Time, wake func()) {
	b.probing, b.checking = false, false
	wait := jittered(b.wait)
	b.probeAt = now.Add(wait)
	b.stop()
	b.timer = time.AfterFunc(wait, wake)
}

// reset closes the breaker.
func (b *breaker) reset() {
	b.stop()
	*b = breaker{openings: b.openings}
}

func (b *breaker) stop() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

// suspect is a message whose publish timed out while no other got through.
type suspect struct {
	item  *item
	err   error
	alone bool // nothing else was in the call
}

// takeProbe returns the one message that is to find out whether the broker is
// back, if it is time: rather one that is not under suspicion.
func (r *route) takeProbe(now time.Time) *batch {
	b := &r.breaker
	if !b.certain && !b.checking {
		if probe := r.pickProbe(now, ready); probe != nil {
			b.checking = true
			return probe
		}
	}
	if b.probing || now.Before(b.probeAt) {
		return nil
	}
	for _, from := range []func(*session, time.Time) []*item{ready, solo, suspected} {
		if probe := r.pickProbe(now, from); probe != nil {
			b.probing = true
			return probe
		}
	}
	return nil
}

func (r *route) pickProbe(now time.Time, from func(*session, time.Time) []*item) *batch {
	for range r.sessions {
		s := r.nextSession()
		if !s.mayPublish(now) {
			continue
		}
		if items := from(s, now); len(items) > 0 {
			return r.newBatch(s, items, batch{probe: true})
		}
	}
	return nil
}

func ready(s *session, now time.Time) []*item { return s.pull(&s.ready, 1, now) }
func solo(s *session, now time.Time) []*item  { return s.pull(&s.solo, 1, now) }
func suspected(s *session, _ time.Time) []*item {
	if len(s.suspects) == 0 {
		return nil
	}
	it := s.suspects[0].item
	s.suspects = s.suspects[1:]
	return []*item{it}
}

// available closes the breaker after a probe got through. What timed out
// before did so by its own fault, then: alone it spends an attempt, in company
// it is tried alone.
func (r *route) available(now time.Time) {
	r.log.Info("broker available again", "down", now.Sub(r.breaker.since))
	r.breaker.reset()
	for _, s := range r.sessions {
		suspects := s.suspects
		s.suspects = nil
		for _, x := range suspects {
			if x.alone {
				r.retry(s, x.item, x.err)
			} else {
				s.solo.push(x.item)
			}
		}
		s.kick()
	}
	r.work.Broadcast()
}

// absolve clears all suspects: messages of different calls got no answer, so
// it is the broker that is away.
func (r *route) absolve() {
	r.breaker.certain = true
	for _, s := range r.sessions {
		items := make([]*item, len(s.suspects))
		for i, x := range s.suspects {
			items[i] = x.item
		}
		s.suspects = nil
		s.ready.unpop(items)
	}
}

// suspects is how many there are.
func (r *route) suspects() int {
	n := 0
	for _, s := range r.sessions {
		n += len(s.suspects)
	}
	return n
}

// wakeAll lets every idle worker look again.
func (r *route) wakeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.work.Broadcast()
}

// jittered gives or takes a fifth, so that many waiters spread out.
func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
