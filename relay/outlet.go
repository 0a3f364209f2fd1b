package relay

import (
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

// outlet is what one session has for one destination. The route's mutex guards
// it, as its queues.
type outlet struct {
	s        *session
	to       *destination
	ready    queue[*item]
	solo     queue[*item]       // to be published one by one
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
	o.suspects = slices.DeleteFunc(o.suspects, func(x suspect) bool {
		id := identityOf(x.item.delivery)
		if stays(x.item) {
			return false
		}
		o.to.breaker.gone = append(o.to.breaker.gone, id)
		return true
	})
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
