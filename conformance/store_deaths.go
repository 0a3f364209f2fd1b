package conformance

import (
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// deathTests: what a message that ends its relay leaves behind.
func deathTests[Tx any]() []storeTest[Tx] {
	deaths := func(r *storeRig[Tx], lease relay.Lease, want int) {
		r.tb.Helper()
		counter, ok := lease.(relay.DeathCounter)
		if !ok {
			r.tb.Fatalf("the lease does not count deaths")
		}
		if got := counter.Deaths(); got != want {
			r.tb.Fatalf("%d deaths, want %d", got, want)
		}
	}
	again := func(r *storeRig[Tx], ds []relay.Delivery, want ...bool) {
		r.tb.Helper()
		for i, d := range ds {
			if d.Again != want[i] {
				r.tb.Fatalf("%s: again %v, want %v", d.Message.Type, d.Again, want[i])
			}
		}
	}
	return []storeTest[Tx]{
		{name: "leases that end otherwise than by a close are counted", run: func(r *storeRig[Tx]) {
			deaths(r, r.acquire(), 0)
			deaths(r, r.acquire(), 1)
			lease := r.acquireFrom(r.second())
			deaths(r, lease, 2)
			r.settle(lease)
			lease = r.acquire()
			deaths(r, lease, 3)
			r.close(lease)
			deaths(r, r.acquire(), 0)
		}},
		{name: "but for those of who asks and is alive", run: func(r *storeRig[Tx]) {
			alive := func(c *relay.Claim) { c.Alive = true }
			r.acquire()
			deaths(r, r.acquire(alive), 0)
			deaths(r, r.acquire(), 1)
			deaths(r, r.acquire(alive), 1)
			r.close(r.acquire())
			deaths(r, r.acquire(func(c *relay.Claim) { c.Owner, c.TTL = "another", time.Millisecond }), 0)
			time.Sleep(5 * time.Millisecond)
			deaths(r, r.acquire(alive), 1)
		}},
		{name: "until one has survived", run: func(r *storeRig[Tx]) {
			r.acquire()
			lease := r.acquire()
			deaths(r, lease, 1)
			lease.(relay.DeathCounter).Survived()
			r.settle(lease)
			deaths(r, lease, 1)
			deaths(r, r.acquire(), 1)
		}},
		{name: "what was read or due before the lease is told apart", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("", "sent", "unsettled", "due", "later")...)
			lease := r.acquire()
			got := r.expect(lease, "sent", "unsettled", "due", "later")
			r.settle(lease, sent(got[0])[0], retrying(got[2], 0), retrying(got[3], 3*time.Second)) // longer than the next lease takes on a busy machine
			again(r, r.expect(lease, "due"), false)
			r.quietFor(lease, 10*time.Millisecond) // clocks tick in milliseconds
			lease = r.acquire()
			r.enqueue(messages("", "new")...)
			for _, d := range r.take(lease, 4) {
				if want := d.Message.Type == "unsettled" || d.Message.Type == "due"; d.Again != want {
					r.tb.Fatalf("%s: again %v, want %v", d.Message.Type, d.Again, want)
				}
			}
		}},
		{name: "followers that come due under the lease are not meant", run: func(r *storeRig[Tx]) {
			r.parkHead(3, retryNow)
			time.Sleep(5 * time.Millisecond)
			lease := r.acquire()
			got := r.expect(lease, "m1")
			again(r, got, true)
			time.Sleep(5 * time.Millisecond)
			r.settle(lease, sent(got...)...)
			again(r, r.expect(lease, "m2", "m3"), false, false)
			r.quietFor(lease, 5*time.Millisecond)
			again(r, r.expect(r.acquire(), "m2", "m3"), true, true)
		}},
		{name: "an attempt on record before it is made", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "m1", "m2")...)
			lease := r.acquire()
			got := r.expect(lease, "m1", "m2")
			r.settle(lease, kept(retrying(got[0], 0)), blocked(got[1])[0])
			r.quiet(lease) // it is in hand
			inHand := got[0]
			inHand.Parked, inHand.Place = true, relay.PlaceKept
			r.settle(lease, kept(pending(inHand, time.Microsecond)))
			r.quiet(lease)
			r.settle(lease, kept(retrying(inHand, 0)))
			r.quiet(lease)
			fresh := r.acquireFrom(r.second())
			r.closedKeys(fresh, map[string]int{"k": 2})
			m1 := r.expect(fresh, "m1")
			if m1[0].Attempts != 1 || m1[0].Place != relay.PlaceKept {
				r.tb.Fatalf("after the death it has %d attempts, place %d", m1[0].Attempts, m1[0].Place)
			}
			r.settle(fresh, kept(retrying(m1[0], 0)))
			r.settle(fresh, sent(m1...)...)
			r.settle(fresh, sent(r.expect(fresh, "m2")...)...)
			r.quiet(fresh)
			r.closedKeys(r.acquire(), nil)
		}},
	}
}

// kept is an outcome after which the message stays in hand.
func kept(o relay.Outcome) relay.Outcome {
	o.Kept = true
	if o.State == outbox.StatePending {
		o.Attempts = o.Delivery.Attempts
	}
	return o
}
