package conformance

import (
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// keyOrderTests: behind a message that waits, its key waits.
func keyOrderTests[Tx any]() []storeTest[Tx] {
	return []storeTest[Tx]{
		{name: "one to five, the second refused twice", run: refusedTwice[Tx]},
		{name: "followers wait for a retry and come in order", run: func(r *storeRig[Tx]) {
			lease := r.parkHead(5, retryHour)
			r.quiet(lease)
			r.closedKeys(r.acquire(), map[string]int{"k": 5})
		}},
		{name: "parked as pending a message spends no attempt, and its key waits", run: func(r *storeRig[Tx]) {
			lease := r.parkHead(3, pendSoon)
			head := r.expect(lease, "m1")
			if d := head[0]; !d.Parked || d.State != outbox.StatePending || d.Attempts != 0 {
				r.tb.Fatalf("it came as state %q, parked %v, %d attempts", d.State, d.Parked, d.Attempts)
			}
			r.settle(lease, pending(head[0], time.Hour))
			r.quiet(lease)
			fresh := r.acquireFrom(r.second())
			r.closedKeys(fresh, map[string]int{"k": 3})
			r.quiet(fresh)
		}},
		{name: "after a pending one the followers come in order", run: func(r *storeRig[Tx]) {
			lease := r.parkHead(3, pendSoon)
			r.settle(lease, sent(r.expect(lease, "m1")...)...)
			got := r.expect(lease, "m2", "m3")
			r.settle(lease, pending(got[0], time.Microsecond), blocked(got[1])[0])
			r.settle(lease, retrying(r.expect(lease, "m2")[0], 0))
			r.settle(lease, sent(r.expect(lease, "m2")...)...)
			r.settle(lease, sent(r.expect(lease, "m3")...)...)
			r.quiet(lease)
			r.closedKeys(r.acquire(), nil)
		}},
		{name: "many followers, over pages", run: func(r *storeRig[Tx]) {
			const n = 1300
			lease := r.parkHead(n, retryNow)
			head := r.expect(lease, "m1")
			r.settle(lease, sent(head...)...)
			want := numbered(n)[1:]
			for len(want) > 0 {
				got := r.receive(lease, 100)
				if !slices.Equal(names(got), want[:len(got)]) {
					r.tb.Fatalf("received %v, want %v", names(got), want[:len(got)])
				}
				want = want[len(got):]
				r.settle(lease, sent(got...)...)
			}
			r.quiet(lease)
			r.closedKeys(r.acquire(), nil)
		}},
		{name: "a follower refused in turn closes the key again", run: func(r *storeRig[Tx]) {
			lease := r.parkHead(4, retryNow)
			r.settle(lease, sent(r.expect(lease, "m1")...)...)
			m2 := r.receive(lease, 1)[0]
			r.settle(lease, retrying(m2, time.Hour))
			r.quiet(lease)
			fresh := r.acquire()
			r.quiet(fresh)
			r.closedKeys(fresh, map[string]int{"k": 3})
		}},
		{name: "handed-out followers blocked again come again, in order", run: func(r *storeRig[Tx]) {
			lease := r.parkHead(4, retryNow)
			r.settle(lease, sent(r.expect(lease, "m1")...)...)
			got := r.expect(lease, "m2", "m3", "m4")
			r.settle(lease, retrying(got[0], 0), blocked(got[1])[0], blocked(got[2])[0])
			m2 := r.expect(lease, "m2")
			if m2[0].Attempts != 1 {
				r.tb.Fatalf("%d attempts, want 1", m2[0].Attempts)
			}
			r.quiet(lease)
			r.settle(lease, sent(m2...)...)
			r.settle(lease, sent(r.expect(lease, "m3", "m4")...)...)
			r.quiet(lease)
			r.closedKeys(r.acquire(), nil)
		}},
		{name: "a new message of a closed key waits behind the others", run: func(r *storeRig[Tx]) {
			lease := r.parkHead(2, retryNow)
			head := r.expect(lease, "m1")
			r.enqueue(messages("k", "m3")...)
			r.settle(lease, blocked(r.expect(lease, "m3")...)...)
			r.settle(lease, sent(head...)...)
			r.expect(lease, "m2", "m3")
		}},
		{name: "the head and its follower in one settle", run: func(r *storeRig[Tx]) {
			lease := r.parkHead(1, retryNow)
			head := r.expect(lease, "m1")
			r.enqueue(messages("k", "m2")...)
			m2 := r.expect(lease, "m2")
			r.settle(lease, sent(head...)[0], blocked(m2...)[0])
			r.expect(lease, "m2")
		}},
		{name: "blocked although its key is open", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a", "b")...)
			lease := r.acquire()
			got := r.expect(lease, "a", "b")
			r.settle(lease, sent(got[0])...)
			r.settle(lease, blocked(got[1])...)
			r.expect(lease, "b")
		}},
		{name: "release: a failed message opens its key", run: func(r *storeRig[Tx]) {
			lease := r.parkHead(3, failHead)
			r.settle(lease, sent(r.expect(lease, "m2", "m3")...)...)
			r.closedKeys(r.acquire(), nil)
		}},
		{name: "release: also after retries", run: func(r *storeRig[Tx]) {
			lease := r.parkHead(3, retryNow)
			r.settle(lease, failed(r.expect(lease, "m1")[0]))
			r.expect(lease, "m2", "m3")
		}},
		{name: "hold: a failed message keeps its key closed", run: func(r *storeRig[Tx]) {
			lease := r.parkHead(3, failHead, hold(true))
			r.quiet(lease)
			fresh := r.acquire(hold(true))
			r.closedKeys(fresh, map[string]int{"k": 3})
			r.quiet(fresh)
		}},
		{name: "hold: also after retries, other keys go on", run: func(r *storeRig[Tx]) {
			lease := r.parkHead(2, retryNow, hold(true))
			r.settle(lease, failed(r.expect(lease, "m1")[0]))
			r.enqueue(messages("other", "x")...)
			r.expect(lease, "x")
			r.quiet(lease)
		}},
		{name: "from hold to release", run: func(r *storeRig[Tx]) {
			r.parkHead(3, failHead, hold(true))
			lease := r.acquire(hold(false))
			r.closedKeys(lease, map[string]int{"k": 2})
			r.settle(lease, sent(r.expect(lease, "m2", "m3")...)...)
			r.quiet(lease)
		}},
		{name: "from release to hold", run: func(r *storeRig[Tx]) {
			r.parkHead(3, failHead)
			lease := r.acquire(hold(true)) // what failed before is in nobody's way
			r.closedKeys(lease, map[string]int{"k": 2})
			r.settle(lease, sent(r.expect(lease, "m2", "m3")...)...)
			r.quiet(lease)
		}},
		{name: "an opened key stays open for the next lease", run: func(r *storeRig[Tx]) {
			lease := r.parkHead(4, retryNow)
			r.settle(lease, sent(r.expect(lease, "m1")...)...)
			r.expect(lease, "m2", "m3")
			fresh := r.acquireFrom(r.second())
			r.closedKeys(fresh, map[string]int{"k": 3})
			r.settle(fresh, sent(r.expect(fresh, "m2", "m3", "m4")...)...)
			r.quiet(fresh)
		}},
		{name: "messages without a key block nobody", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("", "a", "b", "c")...)
			lease := r.acquire()
			got := r.expect(lease, "a", "b", "c")
			r.settle(lease, retrying(got[0], time.Hour), retrying(got[1], 0), sent(got[2])[0])
			r.expect(lease, "b")
			r.closedKeys(r.acquire(), nil)
		}},
		{name: "two retries of one key at once", run: func(r *storeRig[Tx]) { // a route without order
			r.enqueue(messages("k", "a", "b")...)
			lease := r.acquire()
			got := r.expect(lease, "a", "b")
			r.settle(lease, retrying(got[1], 0), retrying(got[0], time.Hour))
			b := r.expect(lease, "b")
			r.settle(lease, sent(b...)...)
			r.quiet(lease)
			r.closedKeys(r.acquire(), map[string]int{"k": 1})
		}},
	}
}

// What parkHead does to the first message.
func retryNow(d relay.Delivery) relay.Outcome  { return retrying(d, 0) }
func retryHour(d relay.Delivery) relay.Outcome { return retrying(d, time.Hour) }
func pendSoon(d relay.Delivery) relay.Outcome  { return pending(d, 5*time.Millisecond) }
func failHead(d relay.Delivery) relay.Outcome  { return failed(d) }

// parkHead enqueues m1 to mn of key "k", receives them, settles the first one
// with head and the others as blocked.
func (r *storeRig[Tx]) parkHead(n int, head func(relay.Delivery) relay.Outcome, edit ...func(*relay.Claim)) relay.Lease {
	r.tb.Helper()
	lease, _ := r.parkHeadOf(n, head, edit...)
	return lease
}

// refusedTwice is the whole story of a relay that publishes 1 to 5 of one key
// to a broker that refuses 2 twice: they arrive as 1, 2, 3, 4, 5.
func refusedTwice[Tx any](r *storeRig[Tx]) {
	r.enqueue(messages("k", numbered(5)...)...)
	lease := r.acquire()
	var arrived []string
	refusals, closed := 0, false
	for len(arrived) < 5 {
		var outcomes []relay.Outcome
		for _, d := range r.receive(lease, 10) {
			switch {
			case closed && !(d.Parked && d.Attempts > 0):
				outcomes = append(outcomes, blocked(d)...)
			case d.Message.Type == "m2" && refusals < 2:
				refusals++
				closed = true
				outcomes = append(outcomes, retrying(d, 5*time.Millisecond))
			default:
				closed = false
				arrived = append(arrived, d.Message.Type)
				outcomes = append(outcomes, sent(d)...)
			}
		}
		r.settle(lease, outcomes...)
	}
	if !slices.Equal(arrived, numbered(5)) {
		r.tb.Fatalf("arrived as %v", arrived)
	}
	r.quiet(lease)
}
