package conformance

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// leaseTests: one relay at a time, and none that lost its lease changes anything.
func leaseTests[Tx any]() []storeTest[Tx] {
	return []storeTest[Tx]{
		{name: "another owner waits", run: func(r *storeRig[Tx]) {
			r.acquire(owner("one"))
			r.held(r.h.Store, owner("two"))
			r.held(r.second(), owner("two"))
		}},
		{name: "closing hands over at once", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a", "b")...)
			lease := r.acquire(owner("one"))
			r.settle(lease, sent(r.expect(lease, "a", "b")[0])...)
			r.close(lease)
			next := r.acquireFrom(r.second(), owner("two"))
			r.expect(next, "b")
			r.quiet(next)
		}},
		{name: "a closed lease settles nothing", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a")...)
			lease := r.acquire(owner("one"))
			got := r.expect(lease, "a")
			r.close(lease)
			if err := lease.Settle(r.ctx, sent(got...)); err == nil {
				r.tb.Fatalf("Settle after Close succeeded")
			}
			r.expect(r.acquire(owner("two")), "a")
		}},
		{name: "it ends at its expiry, not before", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a")...)
			first := r.acquire(owner("one"), ttl(400*time.Millisecond))
			second := r.takeOver(owner("two"))
			if early := time.Until(first.Deadline()); early > 0 {
				r.tb.Fatalf("taken over %v before its Deadline", early)
			}
			r.expect(second, "a")
			r.fenced(first)
		}},
		{name: "its deadline counts from before the renewal", run: func(r *storeRig[Tx]) {
			check := func(what string, lease relay.Lease, before, after time.Time) {
				if d := lease.Deadline(); d.Before(before.Add(time.Minute)) || d.After(after.Add(time.Minute)) {
					r.tb.Fatalf("%s: deadline %v, want between %v and %v", what, d, before.Add(time.Minute), after.Add(time.Minute))
				}
			}
			before := time.Now()
			lease := r.acquire(ttl(time.Minute))
			after := time.Now()
			check("acquired", lease, before, after)
			before = time.Now()
			r.settle(lease)
			check("renewed", lease, before, time.Now())
		}},
		{name: "settling renews it", run: func(r *storeRig[Tx]) {
			const short = time.Second
			lease, other := r.acquire(owner("one"), ttl(short)), r.second()
			for end := time.Now().Add(short * 3 / 2); time.Now().Before(end); {
				r.settle(lease)
				if _, err := other.Acquire(r.ctx, claim(owner("two"))); errors.Is(err, relay.ErrHeld) {
					continue
				} else if time.Now().Before(lease.Deadline()) {
					r.tb.Fatalf("Acquire of a renewed lease: %v, want ErrHeld", err)
				}
				r.t.Log("the machine stood still for longer than the lease: nothing is learnt")
				return
			}
		}},
		{name: "expired but not taken it can be renewed", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a")...)
			lease := r.acquire(owner("one"), ttl(time.Millisecond))
			got := r.expect(lease, "a")
			for time.Now().Before(lease.Deadline().Add(10 * time.Millisecond)) {
				r.quietFor(lease, time.Millisecond)
			}
			r.settle(lease, sent(got...)...)
			r.close(lease)
			r.quiet(r.acquire(owner("two")))
		}},
		{name: "the same owner gets a new one, which fences the old", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a", "b")...)
			old := r.acquire(owner("one"))
			got := r.expect(old, "a", "b")
			r.settle(old, sent(got[0])...)
			fresh := r.acquireFrom(r.second(), owner("one"))
			r.fenced(old, sent(got[1])...)
			r.settle(fresh, sent(r.expect(fresh, "b")...)...)
			r.quiet(fresh)
		}},
		{name: "a lost lease changes nothing", run: lostLease[Tx]},
		{name: "closing a lost lease leaves its successor alone", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a")...)
			old := r.acquire(owner("one"))
			fresh := r.acquire(owner("one"))
			r.fenced(old)
			r.close(old)
			r.held(r.h.Store, owner("two"))
			r.settle(fresh, sent(r.expect(fresh, "a")...)...)
		}},
		{name: "one of many wins", run: func(r *storeRig[Tx]) {
			const rivals = 6
			var (
				won  = make(chan relay.Lease, rivals)
				lost = make(chan error, rivals)
				done sync.WaitGroup
			)
			for i := range rivals {
				done.Go(func() {
					lease, err := r.h.Store.Acquire(r.ctx, claim(owner(fmt.Sprint("rival ", i))))
					if err != nil {
						lost <- err
						return
					}
					won <- lease
				})
			}
			done.Wait()
			close(won)
			close(lost)
			if len(won) != 1 {
				r.tb.Errorf("%d of %d got the lease", len(won), rivals)
			}
			for lease := range won {
				r.close(lease)
			}
			for err := range lost {
				if !errors.Is(err, relay.ErrHeld) {
					r.tb.Errorf("a rival failed with %v, want ErrHeld", err)
				}
			}
		}},
		{name: "a wrong claim is refused", run: func(r *storeRig[Tx]) {
			for what, edit := range map[string]func(*relay.Claim){
				"a shard that does not exist": shard(1),
				"a negative shard":            shard(-1),
				"no route":                    route(""),
				"no owner":                    owner(""),
				"no time to live":             ttl(0),
				"no topics":                   topics(),
			} {
				lease, err := r.h.Store.Acquire(r.ctx, claim(edit))
				if err == nil {
					r.close(lease)
				}
				if err == nil || errors.Is(err, relay.ErrHeld) {
					r.tb.Errorf("a claim with %s: %v, want an error that says so", what, err)
				}
			}
			r.acquire()
		}},
	}
}

// takeOver acquires as soon as that is possible.
func (r *storeRig[Tx]) takeOver(edit ...func(*relay.Claim)) relay.Lease {
	r.tb.Helper()
	for end := time.Now().Add(patience); ; {
		lease, err := r.h.Store.Acquire(r.ctx, claim(edit...))
		if err == nil {
			r.t.Cleanup(func() { _ = lease.Close(r.ctx) })
			return lease
		}
		if !errors.Is(err, relay.ErrHeld) {
			r.ok("acquire", err)
		}
		if time.Now().After(end) {
			r.tb.Fatalf("the lease was still held after %v", patience)
		}
	}
}

// lostLease tries every outcome, on messages of the log and on parked ones.
func lostLease[Tx any](r *storeRig[Tx]) {
	r.enqueue(append(messages("k", "a", "b"), messages("other", "c", "d", "e")...)...)
	old := r.acquire(owner("one"))
	got := r.expect(old, "a", "b", "c", "d", "e")
	r.settle(old, retrying(got[0], 0), blocked(got[1])[0])
	a := r.expect(old, "a")[0]
	fresh := r.acquire(owner("one"))

	for _, outcome := range []relay.Outcome{
		sent(a)[0], retrying(a, time.Hour), failed(a), returned(a)[0],
		sent(got[2])[0], retrying(got[3], 0), failed(got[4]),
		as(outbox.StateExpired, got[2])[0], as(outbox.StateScheduled, got[3])[0],
	} {
		r.fenced(old, outcome)
	}
	r.fenced(old)
	again := r.take(fresh, 4)
	slices.SortFunc(again, func(a, b relay.Delivery) int { return int(a.Seq - b.Seq) })
	if want := []string{"a", "c", "d", "e"}; !slices.Equal(names(again), want) {
		r.tb.Fatalf("after a lost lease's settles the new one received %v, want %v", names(again), want)
	}
	if again[0].Attempts != 1 || !again[0].Parked {
		r.tb.Fatalf("the retried message has %d attempts, parked %v; want 1, parked", again[0].Attempts, again[0].Parked)
	}
	r.quiet(fresh)
	r.settle(fresh, sent(again...)...)
	r.expect(fresh, "b")
	r.quiet(fresh)
}
