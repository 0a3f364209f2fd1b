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

// queue holds values first in, first out, with a way back to the front.
type queue[T any] struct {
	values []T
	head   int
}

func (q *queue[T]) len() int { return len(q.values) - q.head }
func (q *queue[T]) push(v T) { q.values = append(q.values, v) }

func (q *queue[T]) pop() T {
	v := q.values[q.head]
	clear(q.values[q.head : q.head+1])
	q.head++
	if q.head == len(q.values) {
		q.values, q.head = q.values[:0], 0
	} else if q.head >= 1024 && q.head*2 >= len(q.values) {
		n := copy(q.values, q.values[q.head:])
		clear(q.values[n:])
		q.values, q.head = q.values[:n], 0
	}
	return v
}

// unpop puts values back in front, in their order.
func (q *queue[T]) unpop(values []T) {
	if q.head < len(values) {
		rest := q.values[q.head:]
		grown := make([]T, len(values), 2*(len(values)+len(rest)))
		q.values, q.head = append(grown, rest...), len(values)
	}
	q.head -= len(values)
	copy(q.values[q.head:], values)
}

// all are the values in order, valid until the next change.
func (q *queue[T]) all() []T { return q.values[q.head:] }
