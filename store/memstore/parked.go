package memstore

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

// atOnce is when a message is due that does not wait for the clock.
var atOnce = time.Unix(0, 0)

// promotePage is how many blocked messages of a key are made due at once.
const promotePage = 100

// parked is a message that had to leave the log's order.
type parked struct {
	message  outbox.Message // with its Replay
	seq      int64
	arrival  int64 // its place among the parked messages of its key
	state    outbox.State
	closes   bool      // the lease counts it among those in its key's way
	due      time.Time // zero: not due until something changes
	attempts int
	err      string
	out      bool // handed out by the present lease
	// changedAt is when the row, or its being due, changed last.
	changedAt time.Time
	version   int // outdates entries in a due queue
}

// changed: an operator settled it, of which the lease has still to hear.
func (p *parked) changed() bool {
	return (p.state == outbox.StateFailed || p.state == outbox.StateDiscarded) && !p.due.IsZero()
}

// closing reports whether the blocked ones of its key wait for it.
func (p *parked) closing() bool {
	return p.closes && p.state != outbox.StateBlocked && !p.changed()
}

// line is what is parked under one key.
type line struct {
	blocked []*parked // by arrival
	closes  int       // how many stand in the way of new ones
	closing int       // of those, how many the blocked ones wait for
}

// put gives p its new state and place. The zero time: not due.
func (c *cursor) put(p *parked, state outbox.State, closes bool, due time.Time) {
	c.unlink(p)
	if p.arrival == 0 || p.state == outbox.StateScheduled && state == outbox.StateBlocked {
		// New here, or taking its place only now that it has come due.
		c.arrivals++
		p.arrival = c.arrivals
	}
	if p.message.Key == "" && state == outbox.StateBlocked {
		due = atOnce // without a key there is nothing to wait for
	}
	p.state, p.closes, p.due, p.changedAt = state, closes, due, time.Now()
	c.parked[p.seq] = p
	if key := p.message.Key; key != "" {
		l := c.lines[key]
		if l == nil {
			l = &line{}
			c.lines[key] = l
		}
		if p.closes {
			l.closes++
		}
		if p.closing() {
			l.closing++
		}
		if state == outbox.StateBlocked {
			i, _ := slices.BinarySearchFunc(l.blocked, p, byArrival)
			l.blocked = slices.Insert(l.blocked, i, p)
		}
	}
	c.setDue(p, due)
}

// remove forgets p.
func (c *cursor) remove(p *parked) {
	c.unlink(p)
	c.setDue(p, time.Time{})
	delete(c.parked, p.seq)
}

func (c *cursor) unlink(p *parked) {
	l := c.lines[p.message.Key]
	if l == nil || c.parked[p.seq] != p {
		return
	}
	if p.closes {
		l.closes--
	}
	if p.closing() {
		l.closing--
	}
	if p.state == outbox.StateBlocked {
		if i, found := slices.BinarySearchFunc(l.blocked, p, byArrival); found && i == 0 {
			l.blocked[0] = nil
			l.blocked = l.blocked[1:] // a long line is not moved up for each
		} else if found {
			l.blocked = slices.Delete(l.blocked, i, i+1)
		}
	}
	if len(l.blocked)+l.closes == 0 {
		delete(c.lines, p.message.Key)
	}
}

func (c *cursor) setDue(p *parked, due time.Time) {
	if !p.due.Equal(due) {
		p.changedAt = time.Now()
	}
	p.due = due
	p.version++
	if !due.IsZero() && !p.out {
		heap.Push(&c.due, dueEntry{due, p.arrival, p, p.version})
	}
}

// order decides which blocked messages of the key are due: none if another one
// is in their way, otherwise the earliest ones.
func (c *cursor) order(key string) {
	l := c.lines[key]
	if l == nil {
		return
	}
	if l.closing > 0 {
		// Those that had come due are among the first.
		for _, p := range l.blocked[:min(len(l.blocked), 2*promotePage)] {
			if !p.due.IsZero() {
				c.setDue(p, time.Time{})
			}
		}
		return
	}
	for _, p := range l.blocked[:min(len(l.blocked), promotePage)] {
		if p.due.IsZero() {
			c.setDue(p, atOnce)
		}
	}
}

// reload makes everything that is due available to a new lease. Without hold
// nothing that failed keeps its key closed.
func (c *cursor) reload(hold bool) {
	c.due = nil
	for _, p := range c.parked {
		p.out = false
		if !hold && p.state == outbox.StateFailed && p.closes {
			c.put(p, p.state, false, time.Time{})
		}
		if !p.due.IsZero() {
			c.setDue(p, p.due)
		}
	}
	for key := range c.lines {
		c.order(key)
	}
}

// nextDue takes the parked message that has been due longest; nil if none is,
// and then when the next one will be (zero: unknown).
func (c *cursor) nextDue(now time.Time) (*parked, time.Time) {
	for len(c.due) > 0 {
		e := c.due[0]
		if e.version != e.parked.version {
			heap.Pop(&c.due)
			continue
		}
		if e.at.After(now) {
			return nil, e.at
		}
		heap.Pop(&c.due)
		e.parked.out = true
		return e.parked, time.Time{}
	}
	return nil, time.Time{}
}

func byArrival(a, b *parked) int { return cmp.Compare(a.arrival, b.arrival) }

type dueEntry struct {
	at      time.Time
	arrival int64
	parked  *parked
	version int
}

// dueQueue is a heap by due time, then by arrival.
type dueQueue []dueEntry

func (q dueQueue) Len() int { return len(q) }
func (q dueQueue) Less(i, j int) bool {
	if !q[i].at.Equal(q[j].at) {
		return q[i].at.Before(q[j].at)
	}
	return q[i].arrival < q[j].arrival
}
func (q dueQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *dueQueue) Push(x any)   { *q = append(*q, x.(dueEntry)) }
func (q *dueQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = dueEntry{}
	*q = old[:len(old)-1]
	return last
}

// Parked is a parked message as Store.Parked shows it.
type Parked struct {
	Message  outbox.Message
	Shard    int
	Seq      int64
	State    outbox.State
	Attempts int
	Error    string
	// Due is when it is handed out; zero if something else has to happen first.
	Due time.Time
	// Closes: it stands in its key's way.
	Closes bool
}

// Parked returns the parked messages of a route, by shard and arrival.
func (s *Store) Parked(route string) []Parked {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Parked
	for shard := range s.shards {
		c := s.cursors[cursorKey{route, shard}]
		if c == nil {
			continue
		}
		rows := make([]*parked, 0, len(c.parked))
		for _, p := range c.parked {
			rows = append(rows, p)
		}
		slices.SortFunc(rows, byArrival)
		for _, p := range rows {
			out = append(out, Parked{p.message, shard, p.seq, p.state, p.attempts, p.err, p.due, p.closes && !p.changed()})
		}
	}
	return out
}
