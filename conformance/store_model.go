package conformance

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// modelTests compare the store with a model that fits on two pages.
func modelTests[Tx any]() []storeTest[Tx] {
	return []storeTest[Tx]{{name: "random histories of one shard", alone: true, run: func(r *storeRig[Tx]) {
		var runs atomic.Int64
		properties(r.t, 20, 1000, func(t *rapid.T) {
			run := runs.Add(1)
			m := &modelRun[Tx]{storeRig: r.in(t), t: t, topic: fmt.Sprint("topic", run), route: fmt.Sprint("route", run)}
			m.open(false)
			defer func() { _ = m.lease.Close(r.ctx) }()
			t.Repeat(map[string]func(*rapid.T){
				"enqueue":   m.enqueueSome,
				"receive":   m.receiveSome,
				"settle":    m.settleSome,
				"hand over": m.handOver,
				"fence":     m.fence,
				"operate":   m.operateSome,
			})
			m.drainAll()
		})
	}}}
}

// modelMessage is what the model knows of one message.
type modelMessage struct {
	name, key string
	far       bool  // its NotBefore is far in the future
	seq       int64 // 0 until it was received
	arrival   int64 // as it was when it came parked last; 0: unknown

	// Only while it is parked:
	state    outbox.State
	closes   bool // the lease counts it among those in its key's way
	changed  bool // an operator settled it, of which the lease has still to hear
	due      bool // pending, retrying or scheduled, and due
	attempts int
	replay   bool

	// With the present lease:
	handed, returned bool
	parkedWhenHanded bool
	delivery         relay.Delivery
}

// modelRun is one random history: a route of its own that reads a topic of its
// own, and the model's idea of where each message stands.
type modelRun[Tx any] struct {
	*storeRig[Tx]
	t            *rapid.T
	topic, route string
	count        int

	lease  relay.Lease
	hold   bool
	log    []*modelMessage // unsettled, by number
	sent   []*modelMessage // and not parked
	parked []*modelMessage // by arrival
	out    []*modelMessage // handed out by this lease and not settled, in that order
}

// open acquires the lease and compares what it says with the model.
func (m *modelRun[Tx]) open(hold bool) {
	m.hold = hold
	lease, err := m.h.Store.Acquire(m.ctx, claim(route(m.route), topics(m.topic), start(relay.StartNow), func(c *relay.Claim) { c.Hold = hold }))
	m.ok("acquire", err)
	m.lease = lease
	m.out = nil
	closed := map[string]int{}
	for _, x := range m.parked {
		x.handed, x.returned = false, false
		if !hold && x.state == outbox.StateFailed {
			x.closes, x.changed = false, false
		}
		if x.closes {
			closed[x.key]++
		}
	}
	for _, x := range m.log {
		x.handed, x.returned = false, false
	}
	m.closedKeys(lease, closed)
}

// closing reports whether a parked message keeps its followers waiting.
func (x *modelMessage) closing() bool {
	return x.closes && x.state != outbox.StateBlocked && !x.changed
}

// place is where a parked message stands in its key's order.
func (x *modelMessage) place() relay.Place {
	switch {
	case x.closes:
		return relay.PlaceKept
	case x.state == outbox.StateScheduled:
		return relay.PlaceNext
	default:
		return relay.PlaceNone
	}
}

// available is what may be handed out next: the next of the log, and parked
// messages whose turn it is within their key.
func (m *modelRun[Tx]) available() (next *modelMessage, parked []*modelMessage) {
	for _, x := range m.log {
		if !x.handed {
			next = x
			break
		}
	}
	shut := map[string]bool{}
	for _, x := range m.parked {
		shut[x.key] = shut[x.key] || x.closing()
	}
	waits := map[string]bool{} // an earlier follower has not been handed out
	for _, x := range m.parked {
		switch {
		case x.handed:
		case x.due || x.changed:
			parked = append(parked, x)
		case x.state == outbox.StateBlocked && (x.key == "" || !shut[x.key] && !waits[x.key]):
			waits[x.key] = true
			parked = append(parked, x)
		}
	}
	return next, parked
}

func (m *modelRun[Tx]) enqueueSome(t *rapid.T) {
	keys := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "a", "b"}), 1, 5).Draw(t, "keys")
	commits := rapid.IntRange(0, 9).Draw(t, "commits") > 0
	far := rapid.IntRange(0, 19).Draw(t, "far") == 0
	var msgs []outbox.Message
	var fresh []*modelMessage
	for _, key := range keys {
		m.count++
		x := &modelMessage{name: fmt.Sprint(m.count), key: key, far: far}
		msg := message(key, x.name)
		msg.Topic = m.topic
		if far {
			msg.NotBefore = time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		msgs, fresh = append(msgs, msg), append(fresh, x)
	}
	tx := m.begin()
	m.enqueueIn(tx, msgs...)
	if !commits {
		m.rollback(tx)
		return
	}
	m.commit(tx)
	m.log = append(m.log, fresh...)
}

func (m *modelRun[Tx]) receiveSome(t *rapid.T) {
	limit := rapid.IntRange(1, 6).Draw(t, "max")
	if next, parked := m.available(); next == nil && len(parked) == 0 {
		m.quietFor(m.lease, 5*time.Millisecond)
		return
	}
	for _, d := range m.receive(m.lease, limit) {
		m.handedOut(d)
	}
}

// handedOut checks one delivery against the model.
func (m *modelRun[Tx]) handedOut(d relay.Delivery) {
	next, parked := m.available()
	var x *modelMessage
	state, place := outbox.StatePending, relay.PlaceNext
	if d.Parked {
		if i := slices.IndexFunc(parked, func(x *modelMessage) bool { return x.name == d.Message.Type }); i >= 0 {
			x = parked[i]
			place = x.place()
			if x.changed {
				state = x.state
			}
		}
	} else if next != nil && next.name == d.Message.Type {
		x = next
		if x.far {
			state = outbox.StateScheduled
		}
	}
	if x == nil {
		m.t.Fatalf("received %s of key %q (parked %v), which is not its turn", d.Message.Type, d.Message.Key, d.Parked)
	}
	if d.State != state || d.Attempts != x.attempts || d.Message.Key != x.key {
		m.t.Fatalf("received %s as %q with %d attempts and key %q, want %q, %d, %q", x.name, d.State, d.Attempts, d.Message.Key, state, x.attempts, x.key)
	}
	if x.key != "" && d.Place != place || d.Changed() != x.changed || (d.Message.Replay > 0) != x.replay {
		m.t.Fatalf("received %s (%s) at place %d, changed %v, as replay %d; want place %d, %v, %v", x.name, x.state, d.Place, d.Changed(), d.Message.Replay, place, x.changed, x.replay)
	}
	m.checkArrival(x, d)
	if x.seq != 0 && x.seq != d.Seq {
		m.t.Fatalf("%s has number %d, and had %d before", x.name, d.Seq, x.seq)
	}
	x.seq, x.handed, x.parkedWhenHanded, x.delivery = d.Seq, true, d.Parked, d
	m.out = append(m.out, x)
}

// checkArrival checks that the parked messages of a key are numbered in their
// order.
func (m *modelRun[Tx]) checkArrival(x *modelMessage, d relay.Delivery) {
	if d.Parked != (d.Arrival > 0) {
		m.t.Fatalf("%s came with arrival number %d", x.name, d.Arrival)
	}
	x.arrival = d.Arrival
	last := int64(0)
	for _, p := range m.parked {
		if p.key != x.key || p.key == "" || p.arrival == 0 {
			continue
		}
		if p.arrival <= last {
			m.t.Fatalf("%s has arrival number %d, after %d", p.name, p.arrival, last)
		}
		last = p.arrival
	}
}

// settleSome draws outcomes that a relay could come to: in order within a key,
// and blocked behind whatever is parked.
func (m *modelRun[Tx]) settleSome(t *rapid.T) {
	var outcomes []relay.Outcome
	waits := map[string]bool{}
	for _, x := range slices.Clone(m.out) {
		if x.key != "" && waits[x.key] || rapid.IntRange(0, 3).Draw(t, "leave") == 0 {
			waits[x.key] = true
			continue
		}
		outcome := m.draw(t, x)
		outcomes = append(outcomes, outcome)
		m.record(x, outcome)
	}
	m.settle(m.lease, outcomes...)
}

// draw chooses an outcome for a message in hand.
func (m *modelRun[Tx]) draw(t *rapid.T, x *modelMessage) relay.Outcome {
	switch {
	case m.wasReturned(x.key):
		return returned(x.delivery)[0]
	case x.delivery.State != outbox.StatePending:
		return as(x.delivery.State, x.delivery)[0]
	case m.behind(x):
		return blocked(x.delivery)[0]
	}
	switch rapid.IntRange(0, 9).Draw(t, "outcome") {
	case 0, 1:
		return retrying(x.delivery, 0)
	case 2:
		return retrying(x.delivery, time.Hour)
	case 3:
		return failed(x.delivery)
	case 4:
		return returned(x.delivery)[0]
	case 5:
		return pending(x.delivery, time.Microsecond)
	case 6:
		return pending(x.delivery, time.Hour)
	}
	return sent(x.delivery)[0]
}

func (m *modelRun[Tx]) wasReturned(key string) bool {
	is := func(x *modelMessage) bool { return key != "" && x.key == key && x.returned }
	return slices.ContainsFunc(m.log, is) || slices.ContainsFunc(m.parked, is)
}

// behind reports whether an earlier message of its key is parked.
func (m *modelRun[Tx]) behind(x *modelMessage) bool {
	if x.key == "" || x.delivery.Place == relay.PlaceNone {
		return false
	}
	for _, p := range m.parked {
		if p == x {
			return false
		}
		if p.key == x.key && p.closes && !p.changed {
			return true
		}
	}
	return false
}

// record moves the message to where the outcome puts it.
func (m *modelRun[Tx]) record(x *modelMessage, o relay.Outcome) {
	m.out = without(m.out, x)
	if o.Returned() {
		x.returned = true
		return
	}
	if !x.parkedWhenHanded {
		m.log = without(m.log, x)
	}
	x.handed = false
	closes := o.Closes(m.hold)
	switch {
	case o.State == outbox.StateSent:
		m.parked = without(m.parked, x)
		m.sent = append(m.sent, x)
		x.arrival = 0
		return
	case x.delivery.Changed():
		x.closes, x.changed = false, false
		return
	case x.parkedWhenHanded && x.state == outbox.StateDiscarded:
		x.closes, x.changed, x.attempts = closes, closes, o.Attempts
		return
	case !slices.Contains(m.parked, x):
		m.parked = append(m.parked, x)
	case x.state == outbox.StateScheduled && o.State == outbox.StateBlocked:
		m.parked = append(without(m.parked, x), x) // it takes its place now
		x.arrival = 0
	}
	x.state, x.closes, x.attempts = o.State, closes, o.Attempts
	x.due = o.RetryAfter < time.Hour && (o.State == outbox.StateRetrying || o.State == outbox.StatePending)
}

// handOver closes the lease and takes the next one.
func (m *modelRun[Tx]) handOver(t *rapid.T) {
	m.close(m.lease)
	m.open(rapid.Bool().Draw(t, "hold"))
}

// fence takes the lease from itself, as after a kill, and has the lost one try.
func (m *modelRun[Tx]) fence(t *rapid.T) {
	old, attempt := m.lease, []relay.Outcome(nil)
	for _, x := range m.out {
		attempt = append(attempt, m.draw(t, x))
	}
	m.open(rapid.Bool().Draw(t, "hold"))
	m.fenced(old, attempt...)
	m.close(old)
}

// drainAll hands over once more and sends everything that can be.
func (m *modelRun[Tx]) drainAll() {
	m.close(m.lease)
	m.open(false)
	for {
		next, parked := m.available()
		if next == nil && len(parked) == 0 {
			break
		}
		for _, d := range m.receive(m.lease, 10) {
			m.handedOut(d)
		}
		var outcomes []relay.Outcome
		for _, x := range slices.Clone(m.out) {
			o := sent(x.delivery)[0]
			if x.delivery.State != outbox.StatePending {
				o = as(x.delivery.State, x.delivery)[0]
			} else if m.behind(x) {
				o = blocked(x.delivery)[0]
			}
			outcomes = append(outcomes, o)
			m.record(x, o)
		}
		m.settle(m.lease, outcomes...)
	}
	m.quietFor(m.lease, 5*time.Millisecond)
	for _, x := range m.parked {
		if x.due || x.changed || x.state == outbox.StateBlocked && !slices.ContainsFunc(m.parked, func(y *modelMessage) bool { return y.key == x.key && y.closing() }) {
			m.t.Fatalf("%s of key %q is stuck as %s", x.name, x.key, x.state)
		}
	}
}

// without is the list without one element.
func without(list []*modelMessage, x *modelMessage) []*modelMessage {
	return slices.DeleteFunc(slices.Clone(list), func(y *modelMessage) bool { return y == x })
}
