package conformance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// routeTests: a route is an independent reader of the log.
func routeTests[Tx any]() []storeTest[Tx] {
	return []storeTest[Tx]{
		{name: "each gets every message that matches", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a", "b")...)
			for _, name := range []string{"first", "second"} {
				lease := r.acquire(route(name))
				r.settle(lease, sent(r.expect(lease, "a", "b")...)...)
			}
		}},
		{name: "one that stands still holds nobody up", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a")...)
			dead, live := r.acquire(route("dead")), r.acquire(route("live"))
			r.expect(dead, "a")
			r.settle(live, sent(r.expect(live, "a")...)...)
			r.enqueue(messages("k", "b")...)
			r.settle(live, sent(r.expect(live, "b")...)...)
			r.close(dead)
			r.expect(r.acquire(route("dead"), owner("two")), "a", "b")
		}},
		{name: "parked messages are a route's own", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a", "b")...)
			one, other := r.acquire(route("one")), r.acquire(route("other"))
			got := r.expect(one, "a", "b")
			r.settle(one, retrying(got[0], time.Hour), blocked(got[1])[0])
			r.settle(other, sent(r.expect(other, "a", "b")...)...)
			r.close(one)
			r.close(other)
			r.closedKeys(r.acquire(route("one")), map[string]int{"k": 2})
			r.closedKeys(r.acquire(route("other")), nil)
		}},
		{name: "topics filter", run: func(r *storeRig[Tx]) {
			lease := r.acquire(topics("billing.*", "Orders"))
			for _, topic := range []string{"orders", "Orders", "billing.paid", "billing.paid.twice", "billing", "Billing.paid", "billing.due"} {
				m := message("k", topic)
				m.Topic = topic
				r.enqueue(m)
			}
			r.settle(lease, sent(r.expect(lease, "Orders", "billing.paid", "billing.due")...)...)
			r.quiet(lease)
		}},
		{name: "what does not match counts as done", run: func(r *storeRig[Tx]) {
			lease := r.acquire(topics("wanted"))
			other, wanted := message("k", "other"), message("k", "wanted")
			other.Topic, wanted.Topic = "other", "wanted"
			r.enqueue(other, other, other, wanted)
			r.expect(lease, "wanted") // so it has seen the others
			r.settle(lease)
			r.close(lease)
			lease = r.acquire(topics("**"), owner("two"))
			r.expect(lease, "wanted")
			r.quiet(lease)
			r.enqueue(other)
			r.expect(lease, "other")
		}},
		{name: "from the beginning", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "old")...)
			lease := r.acquire(start(relay.StartBeginning))
			r.enqueue(messages("k", "new")...)
			r.expect(lease, "old", "new")
		}},
		{name: "from now, once", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "old")...)
			lease := r.acquire(start(relay.StartNow))
			r.quiet(lease)
			r.enqueue(messages("k", "a", "b")...)
			r.settle(lease, sent(r.expect(lease, "a", "b")[0])...)
			r.close(lease)
			r.enqueue(messages("k", "c")...)
			lease = r.acquire(start(relay.StartNow), owner("two"))
			r.expect(lease, "b", "c")
			r.close(lease)
			lease = r.acquire(start(relay.StartBeginning), owner("three"))
			r.expect(lease, "b", "c")
			r.quiet(lease)
		}},
	}
}

// reloadTests: what a new lease finds.
func reloadTests[Tx any]() []storeTest[Tx] {
	return []storeTest[Tx]{
		{name: "exactly the unsettled comes again, in order", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("", numbered(9)...)...)
			lease := r.acquire()
			got := r.expect(lease, numbered(9)...)
			r.settle(lease, sent(got[7], got[1])...)
			r.settle(lease, sent(got[4])...)
			fresh := r.acquireFrom(r.second()) // the old lease was killed
			got = r.expect(fresh, "m1", "m3", "m4", "m6", "m7", "m9")
			r.quiet(fresh)
			r.settle(fresh, sent(got[5], got[0], got[2])...)
			r.enqueue(messages("", "m10")...)
			fresh = r.acquire()
			r.settle(fresh, sent(r.expect(fresh, "m3", "m6", "m7", "m10")...)...)
			r.quiet(r.acquire())
		}},
		{name: "much that is unsettled", run: func(r *storeRig[Tx]) {
			all := numbered(3000)
			r.enqueue(messages("", all...)...)
			lease := r.acquire()
			got := r.take(lease, len(all))
			var outcomes []relay.Outcome
			var want []string
			for i, d := range got {
				if i%3 == 0 {
					want = append(want, d.Message.Type)
					continue
				}
				outcomes = append(outcomes, sent(d)...)
			}
			r.settle(lease, outcomes...)
			fresh := r.acquire()
			r.expect(fresh, want...)
			r.quiet(fresh)
		}},
		{name: "a message received and not settled comes again", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a")...)
			r.expect(r.acquire(), "a")
			r.expect(r.acquire(), "a")
		}},
		{name: "a returned message comes to the next lease only", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a", "b")...)
			lease := r.acquire()
			got := r.expect(lease, "a", "b")
			r.settle(lease, returned(got...)...)
			r.quiet(lease)
			r.close(lease)
			lease = r.acquire()
			got = r.expect(lease, "a", "b")
			r.settle(lease, retrying(got[0], 0), returned(got[1])[0])
			got = r.expect(lease, "a")
			r.settle(lease, returned(got...)...)
			r.quiet(lease)
			r.close(lease)
			again := r.take(r.acquire(), 2)
			slices.SortFunc(again, func(a, b relay.Delivery) int { return int(a.Seq - b.Seq) })
			if want := []string{"a", "b"}; !slices.Equal(names(again), want) || again[0].Attempts != 1 {
				r.tb.Fatalf("received %v with %d attempts on the first, want %v with 1", names(again), again[0].Attempts, want)
			}
		}},
		{name: "closed keys are counted", run: closedKeysCounted[Tx]},
	}
}

// closedKeys checks a lease's closed keys.
func (r *storeRig[Tx]) closedKeys(lease relay.Lease, want map[string]int) {
	r.tb.Helper()
	got := lease.ClosedKeys()
	ok := len(got) == len(want)
	for key, n := range want {
		ok = ok && got[key] == n
	}
	if !ok {
		r.tb.Fatalf("closed keys %v, want %v", got, want)
	}
}

func closedKeysCounted[Tx any](r *storeRig[Tx]) {
	future := r.now().Add(time.Hour)
	scheduled := message("scheduled", "s")
	scheduled.NotBefore = future
	all := slices.Concat(messages("retrying", "r1", "r2", "r3"), messages("failed", "f1"),
		messages("", "free"), messages("sent", "x"), []outbox.Message{scheduled})
	r.enqueue(all...)
	lease := r.acquire(hold(true))
	r.closedKeys(lease, nil)
	d := r.expect(lease, "r1", "r2", "r3", "f1", "free", "x", "s")
	r.settle(lease, retrying(d[0], time.Hour), blocked(d[1])[0], blocked(d[2])[0], failed(d[3]),
		retrying(d[4], time.Hour), sent(d[5])[0], as(outbox.StateScheduled, d[6])[0])
	r.closedKeys(r.acquire(hold(true)), map[string]int{"retrying": 3, "failed": 1})
	r.closedKeys(r.acquire(hold(false)), map[string]int{"retrying": 3})
}

// receiveWithin is one Receive that may find nothing; done says that it did not.
func (r *storeRig[Tx]) receiveWithin(lease relay.Lease, wait time.Duration) (got []relay.Delivery, done bool) {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, wait)
	defer cancel()
	got, err := lease.Receive(ctx, 500)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		r.ok("receive", err)
	}
	return got, len(got) == 0
}
