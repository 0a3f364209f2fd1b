package relay

import "time"

// item is one delivery in hand. The route's mutex guards it.
type item struct {
	delivery *Delivery
	page     *page
	key      string
	size     int64

	// Messages of one key in hand form a chain: the head is ready, being
	// published, or waits for its outcome to be committed; the others wait
	// for it, in order.
	gated bool  // is the head of a chain
	next  *item // the one behind
	last  *item // on the head of a chain of several: its end

	counted bool // among those that session.closed counts
	free    bool // it has no place in its key's order
	// dangerous: a process that died may have been publishing it.
	dangerous bool
	trial     *trial // it is, or was, published alone for that
	// unanswered: a publish of it ended without an answer, so it may have arrived.
	unanswered bool
}

// detach gives the item memory of its own, so that one that has to wait does
// not keep the whole page it came with.
func (it *item) detach() *item {
	own := *it
	delivery := *it.delivery
	own.delivery = &delivery
	*it.delivery = Delivery{}
	return &own
}

// page is what one Receive handed out.
type page struct {
	at   time.Time
	left int // without an outcome yet
}

// queue holds items first in, first out, with a way back to the front.
type queue struct {
	items []*item
	head  int
}

func (q *queue) len() int      { return len(q.items) - q.head }
func (q *queue) push(it *item) { q.items = append(q.items, it) }

func (q *queue) pop() *item {
	it := q.items[q.head]
	q.items[q.head] = nil
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	} else if q.head >= 1024 && q.head*2 >= len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return it
}

// unpop puts items back in front, in their order.
func (q *queue) unpop(items []*item) {
	if q.head < len(items) {
		rest := q.items[q.head:]
		grown := make([]*item, len(items), 2*(len(items)+len(rest)))
		q.items, q.head = append(grown, rest...), len(items)
	}
	q.head -= len(items)
	copy(q.items[q.head:], items)
}

// all are the items in order, valid until the next change.
func (q *queue) all() []*item { return q.items[q.head:] }
