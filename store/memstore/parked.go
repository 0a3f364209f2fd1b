package memstore

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

// promotePage is how many blocked messages of a key are made due at once.
const promotePage = 100

// parked is a message that had to leave the log's order.
type parked struct {
	message  outbox.Message
	seq      int64
	arrival  int64 // its place among the parked messages of its key
	state    outbox.State
	due      time.Time // zero: not due until something changes
	attempts int
	err      string
	out      bool // handed out by the present lease
	version  int  // outdates entries in a due queue
}

// line is what is parked under one key.
type line struct {
	blocked          []*parked // by arrival
	retrying, failed int       // retrying: or pending
}

// closed is the number of messages that stand in the way of new ones.
func (c *cursor) closed(l *line) int {
	n := len(l.blocked) + l.retrying
	if c.hold {
		n += l.failed
	}
	return n
}

// open reports whether blocked messages may go on.
func (c *cursor) open(l *line) bool { return l.retrying == 0 && !(c.hold && l.failed > 0) }

// park gives p its new state and place. The zero time: not due.
func (c *cursor) park(p *parked, state outbox.State, due time.Time) {
	c.unlink(p)
	if p.arrival == 0 || p.state == outbox.StateScheduled {
		// New here, or taking its place only now that it has come due.
		c.arrivals++
		p.arrival = c.arrivals
	}
	p.state, p.out = state, false
	c.parked[p.seq] = p
	if l := c.line(p.message.Key); l != nil {
		switch state {
		case outbox.StateRetrying, outbox.StatePending:
			l.retrying++
		case outbox.StateFailed:
			l.failed++
		case outbox.StateBlocked:
			i, _ := slices.BinarySearchFunc(l.blocked, p, byArrival)
			l.blocked = slices.Insert(l.blocked, i, p)
		}
		if !c.open(l) { // followers that had come due have to wait again
			for _, b := range l.blocked {
				if !b.out && !b.due.IsZero() {
					c.setDue(b, time.Time{})
				}
			}
		}
	} else if state == outbox.StateBlocked {
		due = time.Now() // without a key there is nothing to wait for
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
	if l == nil {
		return
	}
	switch p.state {
	case outbox.StateRetrying, outbox.StatePending:
		l.retrying--
	case outbox.StateFailed:
		l.failed--
	case outbox.StateBlocked:
		if i, found := slices.BinarySearchFunc(l.blocked, p, byArrival); found {
			l.blocked = slices.Delete(l.blocked, i, i+1)
		}
	}
	if len(l.blocked)+l.retrying+l.failed == 0 {
		delete(c.lines, p.message.Key)
	}
}

func (c *cursor) line(key string) *line {
	if key == "" {
		return nil
	}
	l := c.lines[key]
	if l == nil {
		l = &line{}
		c.lines[key] = l
	}
	return l
}

func (c *cursor) setDue(p *parked, due time.Time) {
	p.due = due
	p.version++
	if !due.IsZero() && !p.out {
		heap.Push(&c.due, dueEntry{due, p.arrival, p, p.version})
	}
}

// promote makes the earliest blocked messages of key due if nothing stands in
// their way any more.
func (c *cursor) promote(key string, now time.Time) {
	l := c.lines[key]
	if l == nil || !c.open(l) {
		return
	}
	for _, p := range l.blocked[:min(len(l.blocked), promotePage)] {
		if p.due.IsZero() {
			c.setDue(p, now)
		}
	}
}

// reload makes everything that is due available to a new lease.
func (c *cursor) reload(now time.Time) {
	c.due = nil
	for _, p := range c.parked {
		p.out = false
		if l := c.lines[p.message.Key]; p.state == outbox.StateBlocked && l != nil && !c.open(l) {
			p.due = time.Time{}
		}
		if !p.due.IsZero() {
			c.setDue(p, p.due)
		}
	}
	for key := range c.lines {
		c.promote(key, now)
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
			out = append(out, Parked{p.message, shard, p.seq, p.state, p.attempts, p.err, p.due})
		}
	}
	return out
}
