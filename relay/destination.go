package relay

import "time"

const (
	// mostCalls is how many Publish calls a route with several destinations
	// makes at a time, over all of them; more if Concurrency asks for it.
	mostCalls = 256
	// mostKnown is how many destinations a route remembers of which it has
	// nothing in hand.
	mostKnown = 1000
)

// destination is one of the places that a route's messages go to. It has calls,
// a breaker and suspects of its own, so that it leaves the others alone when it
// is away or slow. The route's mutex guards it.
type destination struct {
	r    *route
	name string // empty: all messages of the route go there

	outlets []*outlet // of the sessions that have, or had, something for it
	turn    int       // rotates over them
	queued  bool      // among the route's runnable ones

	waiting      int // messages in the outlets' ready queues
	waitingBytes int64
	alone        int // messages in their solo queues
	soloing      int // being published so
	calls        []*batch
	publishing   int // messages in them
	used         time.Time

	batch   int // the most messages of a call; 0: as usual
	breaker breaker
	passes  uint64 // how often the broker has answered for a message of it
	err     error  // the last one that said that it is away
	behind  bool   // it is slow, and has more in hand than others leave it
	parked  int    // messages that wait in the store, since it is away or behind
}

// destination returns the one with that name.
func (r *route) destination(name string) *destination {
	d := r.destinations[name]
	if d == nil {
		if len(r.destinations) >= r.sweepAt {
			r.sweep()
		}
		d = &destination{r: r, name: name, used: time.Now()}
		r.destinations[name] = d
	}
	return d
}

// sweep forgets destinations of which nothing is in hand: all that are well,
// and if there are very many those that are away too. They come back by
// themselves, with the next message.
func (r *route) sweep() {
	for _, alsoAway := range []bool{false, true} {
		for _, d := range r.destinations {
			if d.inHand() || d.stuck() && !alsoAway {
				continue
			}
			d.breaker.reset()
			delete(r.stuck, d)
			delete(r.waiting, d)
			delete(r.destinations, d.name)
			for _, o := range d.outlets {
				delete(o.s.outlets, d)
				if o.s.latest == o {
					o.s.latest = nil
				}
			}
		}
		if len(r.destinations) < mostKnown {
			break
		}
	}
	r.sweepAt = max(mostKnown, 2*len(r.destinations))
}

// inHand reports whether messages for it are in hand.
func (d *destination) inHand() bool {
	if d.waiting+d.alone+len(d.calls) > 0 {
		return true
	}
	for _, o := range d.outlets {
		if len(o.suspects) > 0 {
			return true
		}
	}
	return false
}

// enqueue gives the destination its turn to be published to, if there is
// something for it that may be.
func (d *destination) enqueue() {
	if d.queued || !d.mayRun() {
		return
	}
	d.queued = true
	d.r.runnable.push(d)
}

func (d *destination) mayRun() bool {
	switch {
	case len(d.calls) >= d.callLimit():
		return false
	case d.breaker.open:
		return d.breaker.wanted(time.Now())
	default:
		return d.waiting > 0 || d.alone > 0 && d.soloing < d.soloLimit()
	}
}

// callLimit is how many calls may run at a time. Where there are several
// destinations, each gets less the more calls are running, so that those that
// hang leave some to the others.
func (d *destination) callLimit() int {
	if d.name == "" {
		return d.r.Concurrency
	}
	return min(d.r.Concurrency, max(1, (d.r.crew()-d.r.calls)/4))
}

// soloLimit: one by one goes what may hang, with half of the calls at most.
func (d *destination) soloLimit() int { return max(1, d.r.Concurrency/2) }

// take returns the next batch for it, or nil if nothing may be published now.
func (d *destination) take(now time.Time) *batch {
	if len(d.calls) >= d.callLimit() {
		return nil // the end of one of them gives it its turn again
	}
	if d.breaker.open {
		return d.takeProbe(now)
	}
	most, bytes := d.share()
	if most == 0 {
		return nil
	}
	for range d.outlets {
		o := d.nextOutlet()
		if !o.s.mayPublish(now) {
			o.s.late = true
			continue
		}
		if o.solo.len() > 0 && d.soloing < d.soloLimit() {
			if items := o.pullSolo(now); len(items) > 0 {
				d.soloing++
				return d.r.newBatch(o, items, batch{solo: true}, now)
			}
		}
		if items := o.pull(most, bytes, now); len(items) > 0 {
			return d.r.newBatch(o, items, batch{}, now)
		}
	}
	return nil
}

func (d *destination) nextOutlet() *outlet {
	d.turn++
	return d.outlets[d.turn%len(d.outlets)]
}

// share is how many messages, and bytes, a call should take: all of them as long
// as the other calls that may be made get as much. Where there are several
// destinations, no call takes more than a part of what the others have left; but
// the first of a destination always gets something.
func (d *destination) share() (most int, bytes int64) {
	r := d.r
	most, bytes = largestBatch, r.budget.maxBytes
	if r.limiter != nil {
		most = min(most, r.limiter.Burst())
	}
	free := max(min(r.Concurrency-len(d.calls), r.crew()-r.calls), 1)
	share := max((d.waiting+free-1)/free, smallestBatch)
	if d.batch > 0 {
		most = min(most, d.batch)
	}
	if d.name != "" {
		bytes /= 16
		room := (r.budget.maxMessages-r.publishing)/2 - d.publishing
		if room < smallestBatch && len(d.calls) > 0 {
			return 0, 0
		}
		share = min(share, max(room, smallestBatch))
	}
	return min(share, most), bytes
}

// adapt makes calls smaller when one with several messages had no time for all
// of them, and larger again once they pass: a destination that takes long for a
// message must not let all of a call time out, again and again.
func (d *destination) adapt(size int, late bool) {
	switch {
	case late && size > 1:
		d.batch = max(size/2, 1)
	case !late && size == d.batch:
		if d.batch *= 2; d.batch > largestBatch {
			d.batch = 0
		}
	}
}
