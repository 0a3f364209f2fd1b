package relay

import (
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

const (
	// mostCalls is how many Publish calls a route with several destinations
	// makes at a time, over all of them.
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

// outlet is what one session has for one destination. The route's mutex guards
// it, as its queues.
type outlet struct {
	s        *session
	to       *destination
	ready    queue
	solo     queue              // to be published one by one
	suspects []suspect          // timed out; what comes next shows whose fault it is
	parked   map[int64]struct{} // numbers of what is parked as pending and can be called back
	gone     bool               // its session has left, so the destination does not count it
}

// outletFor returns where the message is to go out.
func (s *session) outletFor(m *outbox.Message) *outlet {
	name := ""
	if s.r.resolver != nil {
		name = s.r.resolver.Destination(m)
	}
	if s.latest != nil && s.latest.to.name == name {
		return s.latest
	}
	d := s.r.destination(name)
	o := s.outlets[d]
	if o == nil {
		o = &outlet{s: s, to: d, gone: s.ending}
		s.outlets[d] = o
		if !o.gone {
			d.outlets = append(d.outlets, o)
		}
	}
	s.latest = o
	return o
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

// offer makes a message ready to be published.
func (s *session) offer(it *item) {
	o := s.outletFor(&it.delivery.Message)
	o.push(it)
}

// push puts a message at the end of those that are ready.
func (o *outlet) push(it *item) {
	o.ready.push(it)
	o.count(1, it.size)
}

// unpop puts messages back in front of those that are ready.
func (o *outlet) unpop(items []*item) {
	if len(items) == 0 {
		return
	}
	o.ready.unpop(items)
	size := int64(0)
	for _, it := range items {
		size += it.size
	}
	o.count(len(items), size)
}

// single puts a message among those to be published one by one.
func (o *outlet) single(it *item) {
	o.solo.push(it)
	if !o.gone {
		o.to.alone++
		o.to.enqueue()
	}
}

// count notes that so much more is ready, or less.
func (o *outlet) count(n int, size int64) {
	if o.gone {
		return
	}
	o.to.waiting += n
	o.to.waitingBytes += size
	if n > 0 {
		o.to.enqueue()
	}
}

// pull takes up to n messages that are ready, of so many bytes in all unless it
// is one. Those that expired while they waited get their outcome instead.
func (o *outlet) pull(n int, bytes int64, now time.Time) []*item {
	items := make([]*item, 0, min(n, o.ready.len()))
	for len(items) < n && o.ready.len() > 0 {
		it := o.ready.all()[0]
		if bytes -= it.size; bytes < 0 && len(items) > 0 {
			break
		}
		o.ready.pop()
		o.count(-1, -it.size)
		if !o.s.expire(it, now) {
			items = append(items, it)
		}
	}
	return items
}

// pullSolo takes one of the messages that go alone.
func (o *outlet) pullSolo(now time.Time) []*item {
	for o.solo.len() > 0 {
		if it := o.popSolo(); !o.s.expire(it, now) {
			return []*item{it}
		}
	}
	return nil
}

func (o *outlet) popSolo() *item {
	if !o.gone {
		o.to.alone--
	}
	return o.solo.pop()
}

// pullSuspect takes one that timed out.
func (o *outlet) pullSuspect() []*item {
	if len(o.suspects) == 0 {
		return nil
	}
	it := o.suspects[0].item
	o.suspects = o.suspects[1:]
	return []*item{it}
}

// sift asks of each message that waits whether it stays, and takes out those
// that do not. It begins with those that come from the parked set.
func (o *outlet) sift(stays func(*item) bool) {
	items := slices.Clone(o.ready.all())
	slices.SortStableFunc(items, func(a, b *item) int {
		switch {
		case a.delivery.Parked == b.delivery.Parked:
			return 0
		case a.delivery.Parked:
			return -1
		default:
			return 1
		}
	})
	for range items {
		o.count(-1, -o.ready.pop().size)
	}
	for _, it := range items {
		if stays(it) {
			o.push(it)
		}
	}
	items = slices.Clone(o.solo.all())
	for range items {
		o.popSolo()
	}
	for _, it := range items {
		if stays(it) {
			o.single(it)
		}
	}
	o.suspects = slices.DeleteFunc(o.suspects, func(x suspect) bool { return !stays(x.item) })
}

// leave takes the session's outlets away from their destinations.
func (s *session) leave() {
	for d, o := range s.outlets {
		d.waiting -= o.ready.len()
		for _, it := range o.ready.all() {
			d.waitingBytes -= it.size
		}
		d.alone -= o.solo.len()
		o.gone = true
		for i, other := range d.outlets {
			if other == o {
				d.outlets = append(d.outlets[:i], d.outlets[i+1:]...)
				break
			}
		}
	}
	for _, d := range s.parkedFor {
		d.parked--
	}
	s.parkedFor = nil
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
	return min(d.r.Concurrency, max(1, (mostCalls-d.r.calls)/4))
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

// round is a line of destinations.
type round struct {
	list []*destination
	head int
}

func (q *round) len() int            { return len(q.list) - q.head }
func (q *round) push(d *destination) { q.list = append(q.list, d) }

func (q *round) pop() *destination {
	d := q.list[q.head]
	q.list[q.head] = nil
	q.head++
	if q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	} else if q.head >= 64 && q.head*2 >= len(q.list) {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	return d
}

// unanswered is how many of the messages may have arrived without an answer.
func (o *outlet) unanswered() int {
	n := 0
	for _, items := range [][]*item{o.ready.all(), o.solo.all()} {
		for _, it := range items {
			if it.unanswered {
				n++
			}
		}
	}
	for _, x := range o.suspects {
		if x.item.unanswered {
			n++
		}
	}
	return n
}
