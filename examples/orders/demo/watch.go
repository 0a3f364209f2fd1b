package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/examples/orders/demo/journal"
	"github.com/postrider/postrider/examples/orders/page"
)

const (
	// shownOrders is how many orders the page lists.
	shownOrders = 8
	// queryEvery is the least time between two looks at databases and queues,
	// while something changes, and idleEvery between two while nothing does.
	queryEvery = 200 * time.Millisecond
	idleEvery  = time.Second
	// queryShare keeps looking from being a burden: the pause after a look is
	// so many times as long as the look took.
	queryShare = 4
)

// watch is what the page shows: the journal's notes, and what databases and
// queues say, asked now and then.
type watch struct {
	*shop

	mu    sync.Mutex
	asked answers
	// deadBefore are the dead letters that there were at the start; nil before
	// the first look.
	deadBefore []int
}

// answers are what databases and queues said last.
type answers struct {
	orders    int
	totals    []int
	queues    []depth
	queued    []int // how many messages each queue is known to have got
	mail      *page.Mail
	analytics *page.Analytics
}

func newWatch(s *shop) *watch {
	return &watch{shop: s, asked: answers{totals: make([]int, len(s.reactions)), queues: make([]depth, len(s.reactions)), queued: make([]int, len(s.reactions))}}
}

// run asks until ctx ends.
func (w *watch) run(ctx context.Context) error {
	for {
		_, _, changed := w.journal.Progress()
		begin := time.Now()
		now, err := w.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			w.Logger.WarnContext(ctx, "the page cannot see everything", "error", err)
		} else if w.note(now) {
			w.journal.Touch()
			_, _, changed = w.journal.Progress()
		}
		if !sleep(ctx, max(queryEvery, queryShare*time.Since(begin))) {
			return nil
		}
		idle := time.NewTimer(idleEvery)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-idle.C:
		}
		idle.Stop()
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// ask asks everybody. The services first and the orders last, so that a service
// never seems to have more orders than there are.
func (w *watch) ask(ctx context.Context) (answers, error) {
	var a answers
	before := w.journal.Counts()
	for _, r := range w.reactions {
		total, err := r.total(ctx)
		if err != nil {
			return a, err
		}
		queue, err := r.depth(ctx, w.peers.queues)
		if err != nil {
			return a, err
		}
		a.totals = append(a.totals, total)
		a.queues = append(a.queues, queue)
	}
	w.countQueued(&a, before, w.journal.Counts())
	if err := w.panels(ctx, &a); err != nil {
		return a, err
	}
	if err := w.peers.db.DB.QueryRowContext(ctx, `SELECT count(*) FROM orders`).Scan(&a.orders); err != nil {
		return a, fmt.Errorf("count the orders: %w", err)
	}
	return a, nil
}

// countQueued adds up what became of the messages of a queue that has none any
// more, if nothing moved meanwhile: services were done with them, or they are
// dead letters. SQS does not tell how many it got.
func (w *watch) countQueued(a *answers, before, after journal.Counts) {
	if w.deadBefore == nil {
		for _, d := range a.queues {
			w.deadBefore = append(w.deadBefore, d.dead)
		}
	}
	a.queued = slices.Clone(w.asked.queued)
	for i, d := range a.queues {
		service := after.Services[i]
		if d.waiting == 0 && service == before.Services[i] {
			a.queued[i] = service.Done + service.Repeats + d.dead - w.deadBefore[i]
		}
	}
}

// note keeps the answers and reports whether they are new.
func (w *watch) note(now answers) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.asked
	w.asked = now
	return !now.equal(before)
}

// View implements page.Source.
func (w *watch) View() page.View {
	w.mu.Lock()
	a := w.asked
	w.mu.Unlock()
	counts, relay := w.journal.Counts(), w.relay.State()
	v := page.View{
		Plain:    w.Plain,
		Database: w.peers.kind,
		Orders:   a.orders,
		Commits:  counts.Committed, Taken: counts.Taken, Sent: counts.Sent,
		Waiting:   counts.Waiting,
		Complete:  counts.Committed - counts.Open,
		Relay:     page.Relay{PID: relay.PID, Ready: relay.Ready, Away: relay.Away},
		Away:      w.away.Load(),
		Mail:      a.mail,
		Analytics: a.analytics,
	}
	for i, r := range w.reactions {
		c := counts.Services[i]
		v.Services = append(v.Services, page.Service{
			Name: r.name, Title: r.title, Queue: r.queue, Store: r.store, Unit: r.unit, One: r.one,
			Total: a.totals[i],
			// It has at least what the broker has acknowledged.
			Queued: max(a.queued[i], counts.Sent), Delivered: c.Deliveries, Repeats: c.Repeats, Refused: c.Refusals,
			Waiting: a.queues[i].waiting, Dead: a.queues[i].dead, Failing: r.service.Waiting() > 0,
		})
	}
	for _, o := range w.journal.Newest(shownOrders) {
		v.Latest = append(v.Latest, shownOrder(o))
	}
	return v
}

func shownOrder(o journal.Order) page.Order {
	since := func(t time.Time) time.Duration {
		if t.IsZero() {
			return page.Unknown
		}
		// The rest can be faster than the note of the commit.
		return max(t.Sub(o.Committed), 0)
	}
	shown := page.Order{ID: o.ID, Customer: o.Customer, AmountCents: o.AmountCents, Taken: since(o.Taken), Sent: since(o.Sent)}
	for _, visit := range o.Visits {
		shown.Services = append(shown.Services, page.Passing{Out: since(visit.Began), Done: since(visit.Done), Repeats: visit.Repeats})
	}
	return shown
}

// Hops implements page.Source.
func (w *watch) Hops(after int) ([]page.Hop, int) {
	passages, n := w.journal.Passages(after)
	hops := make([]page.Hop, len(passages))
	for i, p := range passages {
		hops[i] = page.Hop{Message: p.Order, Hop: string(p.Hop)}
		if p.Hop == journal.Deliver {
			hops[i].Hop += "-" + w.reactions[p.Service].name
		}
	}
	return hops, n
}

// Changed implements page.Source.
func (w *watch) Changed() <-chan struct{} {
	_, _, changed := w.journal.Progress()
	return changed
}
