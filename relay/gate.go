package relay

import (
	"time"

	"github.com/postrider/postrider/outbox"
)

// The gate keeps the order of each key within a session: at most one message
// of a key is being published, and the next one follows once that is
// acknowledged. Any other outcome closes the key, or holds the followers back
// until the outcome is committed. Everything here needs the route's mutex.

// closedKey counts the parked messages that stand in a key's way.
type closedKey struct {
	count int
	again line
	// away, if set, is the destination for which a message of the key waits.
	away *destination
}

// admit takes a page of deliveries in and returns its size in bytes.
func (s *session) admit(deliveries []Delivery, now time.Time) (bytes int64) {
	for i := range deliveries {
		s.r.clock.see(deliveries[i].Message.CreatedAt, now)
	}
	p := &page{at: now, left: len(deliveries)}
	s.forgetPages()
	s.pages = append(s.pages, p)
	items := make([]item, len(deliveries))
	for i := range deliveries {
		d := &deliveries[i]
		it := &items[i]
		it.delivery, it.page, it.size = d, p, sizeOf(&d.Message)
		if s.r.keyed {
			it.key = d.Message.Key
		}
		bytes += it.size
		if d.State == outbox.StatePending {
			s.r.clock.alive(d.Message.CreatedAt, d.Message.Expires, now)
		}
		s.place(it)
	}
	s.r.stats.Received += uint64(len(deliveries))
	s.inHand += len(deliveries)
	s.inHandBytes += bytes
	return bytes
}

// place decides what happens with a new item: it becomes ready, waits behind
// its key, or has its outcome at once.
func (s *session) place(it *item) {
	d := it.delivery
	it.counted = it.key != "" && d.Place == PlaceKept
	it.free = d.Place == PlaceNone
	it.dangerous = s.isDangerous(d)
	switch {
	case s.takeAcknowledged(d):
		s.record(it, Outcome{State: outbox.StateSent, Attempts: d.Attempts + 1})
	case d.State != outbox.StatePending:
		s.settled(it)
	case s.deaths > 0 && d.Parked && d.Attempts >= s.r.Retry.MaxAttempts:
		s.giveUpOn(it)
	case it.key == "":
		s.start(it)
	case s.mustWait(it):
		s.block(it)
	default:
		head := s.chains(it)[it.key]
		if head == nil {
			s.lead(it)
			return
		}
		it = it.detach()
		if head.last == nil {
			head.next = it
		} else {
			head.last.next = it
		}
		head.last = it
	}
}

// settled gives an item the outcome that it was handed out with.
func (s *session) settled(it *item) {
	d := it.delivery
	o := Outcome{State: d.State, Attempts: d.Attempts, Error: d.Error}
	if d.State == outbox.StateFailed && !d.Released {
		s.r.failures.add(s.shard, d, o)
	}
	s.record(it, o)
}

// chains holds the heads of the chains that the item belongs to. Messages that
// have no place in their key's order keep one among themselves.
func (s *session) chains(it *item) map[string]*item {
	if it.free {
		return s.free
	}
	return s.heads
}

// lead makes an item the head of its key's chain, ready to be published.
func (s *session) lead(it *item) {
	it.gated = true
	s.chains(it)[it.key] = it
	s.start(it)
}

// advance lets the follower of a head go on.
func (s *session) advance(head *item) {
	if !head.gated {
		return
	}
	next := head.next
	if next == nil {
		delete(s.chains(head), head.key)
		return
	}
	if head.last != next {
		next.last = head.last
	}
	head.next, head.last, head.gated = nil, nil, false
	s.lead(next)
}

// sent ends an item that the broker has acknowledged.
func (s *session) sent(it *item, brokerID string) {
	s.r.stats.Sent++
	s.record(it, Outcome{State: outbox.StateSent, Attempts: it.delivery.Attempts + 1, BrokerID: brokerID})
	s.advance(it)
}

// refused ends an item that was not sent and whose outcome decides about its
// followers: retrying, parked as pending, failed or expired.
func (s *session) refused(it *item, o Outcome) {
	closes := s.record(it, o)
	if !it.gated {
		return
	}
	if !closes {
		// The followers go on once this is committed.
		s.releases = append(s.releases, it)
		s.hurry = true
		return
	}
	s.blockFollowers(it)
}

// blockFollowers blocks what waits behind a head, which stands in their way.
func (s *session) blockFollowers(it *item) {
	delete(s.heads, it.key)
	for f := it.next; f != nil; {
		next := f.next
		f.next, f.last = nil, nil
		if f.counted {
			s.closed[it.key].again.follows(f.delivery)
		}
		s.block(f)
		f = next
	}
	it.next, it.last, it.gated = nil, nil, false
}

func (s *session) block(it *item) {
	s.record(it, Outcome{State: outbox.StateBlocked, Attempts: it.delivery.Attempts})
}

// record notes an outcome, for the next Settle, and what it does to the key;
// it reports whether the message stands in its key's way from now on.
func (s *session) record(it *item, o Outcome) (closes bool) {
	o.Delivery = *it.delivery
	switch closes = it.key != "" && o.Closes(s.r.OnFailure == Hold); {
	case closes:
		s.close(it, o.State)
	case it.counted:
		s.reopen(it)
	}
	switch o.State {
	case outbox.StateSent:
	case outbox.StateRetrying:
		s.r.stats.Retried++
	case outbox.StateFailed:
		if !o.Delivery.Released {
			s.r.stats.Failed++
		}
	case outbox.StateBlocked:
		s.r.stats.Blocked++
	case outbox.StateScheduled:
		s.r.stats.Scheduled++
	case outbox.StateExpired:
		s.r.stats.Expired++
	}
	if it.delivery.Parked || o.State != outbox.StateSent {
		s.hurry = true
	}
	s.tally(it, &o)
	*it.delivery = Delivery{} // the page may live on
	it.page.left--
	s.outcomes = append(s.outcomes, o)
	s.outcomeBytes += it.size
	if it.dangerous && it.trial == nil && o.State == outbox.StateBlocked {
		s.remember(&o.Delivery)
	}
	if it.trial != nil && !it.trial.ended {
		it.trial.ended = true
		s.overs = append(s.overs, it.trial)
	}
	return closes
}

// mustWait reports whether parked messages stand in the item's way.
func (s *session) mustWait(it *item) bool {
	if len(s.closed) == 0 || it.free {
		return false
	}
	c := s.closed[it.key]
	return c != nil && (!it.counted || c.again.mustWait(it.delivery))
}

// close counts a message that is being parked in its key's way.
func (s *session) close(it *item, state outbox.State) {
	c := s.closed[it.key]
	if c == nil {
		c = &closedKey{}
		s.closed[it.key] = c
	}
	if state != outbox.StateBlocked {
		c.again.refused(it.delivery)
	}
	if !it.counted {
		c.count++
	}
}

// reopen discounts a parked message that has left its key's way.
func (s *session) reopen(it *item) {
	c := s.closed[it.key]
	if c == nil {
		return
	}
	c.again.gone(it.delivery.Seq)
	if c.count--; c.count <= 0 {
		delete(s.closed, it.key)
	}
}

func sizeOf(m *outbox.Message) int64 {
	n := len(m.Payload) + len(m.Key) + len(m.Topic) + len(m.Type) + len(m.ContentType)
	for name, value := range m.Headers {
		n += len(name) + len(value)
	}
	return int64(n)
}
