// Package journal notes what becomes of every order of one run of the demo:
// when it was committed, when the relay took its event and sent it, and when
// each service dealt with it. The page and the final report read it.
//
// It is the demo's own view of things, put together from outside: no service
// knows of it, and what it counts says nothing about what is stored. Totals
// come from the services' own data.
package journal

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
)

// Order is what the journal knows of one order. Times that are not known (yet)
// are zero.
type Order struct {
	ID          string
	Customer    string
	AmountCents int64
	Committed   time.Time
	Taken       time.Time // the relay began to publish its event, for the first time
	Sent        time.Time // the broker acknowledged it, for the first time
	Visits      []Visit   // one for each service, in the order of New's names
}

// Visit is what one service did with one order.
type Visit struct {
	Began      time.Time // the first delivery
	Done       time.Time // the first success
	Deliveries int
	Refusals   int // deliveries that ended with an error
	Repeats    int // successes after the first: copies, without effect
}

// Complete reports whether every service is done with the order.
func (o Order) Complete() bool {
	return !slices.ContainsFunc(o.Visits, func(v Visit) bool { return v.Done.IsZero() })
}

// Counts are the numbers of this run.
type Counts struct {
	Committed int // orders
	Taken     int // publishes begun, repeats included
	Sent      int // publishes acknowledged, repeats included
	Waiting   int // orders committed whose event was not acknowledged yet
	Open      int // orders committed that some service is not done with
	Services  []ServiceCounts
}

// ServiceCounts are one service's.
type ServiceCounts struct {
	Deliveries int // of whatever message
	Done       int // orders
	Repeats    int
	Refusals   int
}

// Hop is a part of the way of a message.
type Hop string

// The hops.
const (
	Commit  Hop = "commit"  // into database and log
	Take    Hop = "take"    // from the log to the relay
	Send    Hop = "send"    // from the relay to the broker
	Deliver Hop = "deliver" // from a queue to a service
)

// Passage is one message on one hop.
type Passage struct {
	Order   string
	Hop     Hop
	Service int // for Deliver: the place of its name in New's
}

// maxPassages is how many passages are kept for those who read them.
const maxPassages = 4096

// Journal is safe for concurrent use.
type Journal struct {
	now func() time.Time

	mu       sync.Mutex
	services int
	orders   map[string]*Order
	order    []*Order // committed in this run, oldest first
	counts   Counts
	passages []Passage
	passed   int // how many were noted, those no longer kept included
	moves    int // how many changes that bring an order nearer to its end
	finished []Order
	complete func(Order)
	changed  chan struct{}
}

// New returns a journal of so many services. complete, unless nil, is called
// for each order of this run that all of them are done with.
func New(services int, complete func(Order)) *Journal {
	return &Journal{
		now:      time.Now,
		services: services,
		orders:   make(map[string]*Order),
		counts:   Counts{Services: make([]ServiceCounts, services)},
		complete: complete,
		changed:  make(chan struct{}),
	}
}

// Committed notes that an order was committed just now.
func (j *Journal) Committed(id, customer string, amountCents int64) {
	j.update(func(now time.Time) {
		o := j.get(id)
		o.Customer, o.AmountCents, o.Committed = customer, amountCents, now
		j.order = append(j.order, o)
		j.counts.Committed++
		// The rest can be faster than this note.
		if o.Sent.IsZero() {
			j.counts.Waiting++
		}
		j.counts.Open++
		j.check(o)
		j.pass(Passage{Order: id, Hop: Commit})
	})
}

// Taken notes that the relay began to publish the events of the orders.
func (j *Journal) Taken(ids []string, at time.Time) {
	j.update(func(time.Time) {
		for _, id := range ids {
			if o := j.get(id); o.Taken.IsZero() {
				o.Taken = at
			}
			j.counts.Taken++
			j.pass(Passage{Order: id, Hop: Take})
		}
	})
}

// Sent notes that the broker acknowledged the events of the orders.
func (j *Journal) Sent(ids []string, at time.Time) {
	j.update(func(time.Time) {
		for _, id := range ids {
			o := j.get(id)
			if o.Sent.IsZero() {
				o.Sent = at
				j.moves++
				if !o.Committed.IsZero() {
					j.counts.Waiting--
				}
			}
			j.counts.Sent++
			j.pass(Passage{Order: id, Hop: Send})
		}
	})
}

// Watch wraps the handler of a service, the first having number 0, so that the
// journal sees its messages. An event's key is the order's id.
func (j *Journal) Watch(service int, handle inbox.Handler) inbox.Handler {
	return func(ctx context.Context, m outbox.Message) error {
		j.began(service, m.Key)
		err := handle(ctx, m)
		j.ended(service, m.Key, err)
		return err
	}
}

func (j *Journal) began(service int, id string) {
	j.update(func(now time.Time) {
		j.counts.Services[service].Deliveries++
		j.pass(Passage{Order: id, Hop: Deliver, Service: service})
		if id == "" {
			return
		}
		v := &j.get(id).Visits[service]
		v.Deliveries++
		if v.Began.IsZero() {
			v.Began = now
		}
	})
}

func (j *Journal) ended(service int, id string, err error) {
	j.update(func(now time.Time) {
		counts := &j.counts.Services[service]
		if err != nil {
			counts.Refusals++
		}
		if id == "" {
			return
		}
		o := j.get(id)
		v := &o.Visits[service]
		switch {
		case err != nil:
			v.Refusals++
		case !v.Done.IsZero():
			v.Repeats++
			counts.Repeats++
		default:
			v.Done = now
			counts.Done++
			j.moves++
			if !o.Committed.IsZero() {
				j.check(o)
			}
		}
	})
}

// check sees whether a committed order has just become complete.
func (j *Journal) check(o *Order) {
	if o.Complete() {
		j.counts.Open--
		j.finished = append(j.finished, o.clone())
	}
}

// Touch makes those look again who wait for a change, of something else than
// what the journal holds.
func (j *Journal) Touch() { j.update(func(time.Time) {}) }

// Counts are the numbers as they are now.
func (j *Journal) Counts() Counts {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.counts
	c.Services = slices.Clone(c.Services)
	return c
}

// Progress is how many orders of this run are open, a number that grows with
// everything that brings one of them nearer to its end, and a channel that is
// closed at the next change of anything.
func (j *Journal) Progress() (open, moves int, changed <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.counts.Open, j.moves, j.changed
}

// Find returns what is known of an order.
func (j *Journal) Find(id string) (Order, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	o, ok := j.orders[id]
	if !ok {
		return Order{}, false
	}
	return o.clone(), true
}

// Newest are the at most n orders that were committed last, newest first.
func (j *Journal) Newest(n int) []Order {
	j.mu.Lock()
	defer j.mu.Unlock()
	n = min(n, len(j.order))
	newest := make([]Order, n)
	for i := range newest {
		newest[i] = j.order[len(j.order)-1-i].clone()
	}
	return newest
}

// Passages are those that came after the first so many, and how many there
// were in all. Of very many only the last are returned.
func (j *Journal) Passages(after int) ([]Passage, int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := min(j.passed-after, len(j.passages))
	return slices.Clone(j.passages[len(j.passages)-n:]), j.passed
}

// Delays are the times from commit to each service's success, shortest first.
func (j *Journal) Delays(service int) []time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	var delays []time.Duration
	for _, o := range j.order {
		if done := o.Visits[service].Done; !done.IsZero() {
			delays = append(delays, max(done.Sub(o.Committed), 0))
		}
	}
	slices.Sort(delays)
	return delays
}

func (o *Order) clone() Order {
	c := *o
	c.Visits = slices.Clone(o.Visits)
	return c
}

func (j *Journal) get(id string) *Order {
	o, ok := j.orders[id]
	if !ok {
		o = &Order{ID: id, Visits: make([]Visit, j.services)}
		j.orders[id] = o
	}
	return o
}

func (j *Journal) pass(p Passage) {
	if len(j.passages) >= 2*maxPassages {
		j.passages = append(j.passages[:0], j.passages[maxPassages:]...)
	}
	j.passages = append(j.passages, p)
	j.passed++
}

func (j *Journal) update(change func(now time.Time)) {
	j.mu.Lock()
	change(j.now())
	close(j.changed)
	j.changed = make(chan struct{})
	finished := j.finished
	j.finished = nil
	j.mu.Unlock()
	if j.complete == nil {
		return
	}
	for _, o := range finished {
		j.complete(o)
	}
}
