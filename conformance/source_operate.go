package conformance

import (
	"slices"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// operateTests: what an operator changes stands at once, and a lease that is
// held hears of it.
func operateTests[Tx any]() []storeTest[Tx] {
	do := func(r *storeRig[Tx], action admin.Action, ds ...relay.Delivery) {
		r.tb.Helper()
		op := admin.Operation{Action: action, Route: "route"}
		for _, d := range ds {
			op.Seqs = append(op.Seqs, d.Seq)
		}
		slices.Sort(op.Seqs)
		if got := r.operate(op); len(got) != len(ds) {
			r.tb.Fatalf("%s of %v changed %v", action, op.Seqs, got)
		}
	}
	refused := func(r *storeRig[Tx], action admin.Action, d relay.Delivery) {
		r.tb.Helper()
		if got := r.operate(admin.Operation{Action: action, Route: "route", Seqs: []int64{d.Seq}}); len(got) > 0 {
			r.tb.Fatalf("%s of %s was done", action, d.Message.Type)
		}
	}
	heard := func(r *storeRig[Tx], d relay.Delivery, state outbox.State) relay.Outcome {
		r.tb.Helper()
		if d.State != state || !d.Changed() || d.Place != relay.PlaceKept {
			r.tb.Fatalf("of %s the lease hears as %q, changed %v, place %d; want %q", d.Message.Type, d.State, d.Changed(), d.Place, state)
		}
		return as(state, d)[0]
	}
	stands := func(r *storeRig[Tx], d relay.Delivery, place relay.Place, attempts int) {
		r.tb.Helper()
		if d.State != outbox.StatePending || d.Place != place || d.Attempts != attempts {
			r.tb.Fatalf("%s came as %q, place %d, with %d attempts; want pending, %d, %d", d.Message.Type, d.State, d.Place, d.Attempts, place, attempts)
		}
	}
	tests := []storeTest[Tx]{
		{name: "release: a failed message that is retried goes out late and blocks nobody", run: func(r *storeRig[Tx]) {
			lease, got := r.parkHeadOf(3, failHead)
			r.settle(lease, sent(r.expect(lease, "m2", "m3")...)...)
			do(r, admin.Retry, got[0])
			m1 := r.expect(lease, "m1")[0]
			stands(r, m1, relay.PlaceNone, 0)
			r.settle(lease, retrying(m1, time.Hour))
			r.enqueue(messages("k", "m4")...)
			r.settle(lease, sent(r.expect(lease, "m4")...)...)
			r.closedKeys(r.acquire(), nil)
		}},
		{name: "hold: it goes before its followers, in its place", run: func(r *storeRig[Tx]) {
			lease, got := r.parkHeadOf(3, failHead, hold(true))
			r.quiet(lease)
			do(r, admin.Retry, got[0])
			m1 := r.expect(lease, "m1")[0]
			stands(r, m1, relay.PlaceKept, 0)
			r.quiet(lease)
			r.settle(lease, retrying(m1, 0))
			r.settle(lease, sent(r.expect(lease, "m1")...)...)
			r.expect(lease, "m2", "m3")
		}},
		{name: "hold: released a key goes on, its head stays failed", run: func(r *storeRig[Tx]) {
			lease, got := r.parkHeadOf(3, failHead, hold(true))
			refused(r, admin.Release, got[1])
			do(r, admin.Release, got[0])
			refused(r, admin.Release, got[0])
			all := r.expect(lease, "m1", "m2", "m3")
			r.settle(lease, heard(r, all[0], outbox.StateFailed), sent(all[1])[0], sent(all[2])[0])
			r.quiet(lease)
			r.closedKeys(r.acquire(hold(true)), nil)
			do(r, admin.Retry, got[0])
			lease = r.acquire(hold(true))
			stands(r, r.expect(lease, "m1")[0], relay.PlaceNone, 0)
		}},
		{name: "a retrying head is tried at once, its attempts anew", run: func(r *storeRig[Tx]) {
			lease, got := r.parkHeadOf(2, retryHour)
			r.quiet(lease)
			do(r, admin.Retry, got[0])
			m1 := r.expect(lease, "m1")
			stands(r, m1[0], relay.PlaceKept, 0)
			r.quiet(lease)
			r.settle(lease, sent(m1...)...)
			r.expect(lease, "m2")
		}},
		{name: "a scheduled message that is retried goes now", run: func(r *storeRig[Tx]) {
			m := message("k", "s")
			m.NotBefore = r.now().Add(time.Hour)
			r.enqueue(m)
			lease := r.acquire()
			got := r.expect(lease, "s")
			r.settle(lease, as(outbox.StateScheduled, got...)...)
			do(r, admin.Retry, got...)
			stands(r, r.expect(lease, "s")[0], relay.PlaceNext, 0)
		}},
		{name: "an expired message that is retried goes out", run: func(r *storeRig[Tx]) {
			m := message("k", "e")
			m.Expires = r.now().Add(-time.Second)
			r.enqueue(m)
			lease := r.acquire()
			got := r.expect(lease, "e")
			r.settle(lease, as(outbox.StateExpired, got...)...)
			do(r, admin.Retry, got...)
			stands(r, r.expect(lease, "e")[0], relay.PlaceNone, 0)
		}},
		{name: "a discarded head is a record, its followers go on", run: func(r *storeRig[Tx]) {
			lease, got := r.parkHeadOf(4, retryHour)
			do(r, admin.Discard, got[0], got[2])
			all := r.expect(lease, "m1", "m2", "m3", "m4")
			r.settle(lease, heard(r, all[0], outbox.StateDiscarded), sent(all[1])[0], heard(r, all[2], outbox.StateDiscarded), sent(all[3])[0])
			r.quiet(lease)
			r.closedKeys(r.acquire(), nil)
			refused(r, admin.Discard, got[0])
		}},
		{name: "with no lease too", run: func(r *storeRig[Tx]) {
			lease, got := r.parkHeadOf(2, retryHour)
			r.close(lease)
			do(r, admin.Discard, got[0])
			lease = r.acquireFrom(r.second(), owner("two"))
			all := r.expect(lease, "m1", "m2")
			r.settle(lease, heard(r, all[0], outbox.StateDiscarded), sent(all[1])[0])
			r.closedKeys(r.acquire(owner("two")), nil)
		}},
		{name: "discarded in hand it stays so, unless it was sent", run: func(r *storeRig[Tx]) {
			lease, _ := r.parkHeadOf(3, retryNow)
			m1 := r.expect(lease, "m1")
			do(r, admin.Discard, m1...)
			r.settle(lease, retrying(m1[0], time.Hour))
			all := r.expect(lease, "m1", "m2", "m3")
			r.settle(lease, heard(r, all[0], outbox.StateDiscarded))
			do(r, admin.Discard, all[1:]...)
			r.settle(lease, sent(all[1])[0], blocked(all[2])[0])
			r.settle(lease, heard(r, r.expect(lease, "m3")[0], outbox.StateDiscarded))
			r.quiet(lease)
			r.closedKeys(r.acquire(), nil)
			refused(r, admin.Retry, all[1]) // it is gone
			do(r, admin.Retry, m1[0])
		}},
		{name: "what was sent can be replayed, and blocks nobody", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "m1", "m2", "m3")...)
			lease := r.acquire()
			got := r.expect(lease, "m1", "m2", "m3")
			r.settle(lease, sent(got[:2]...)...)
			refused(r, admin.Replay, got[2])
			do(r, admin.Replay, got[0])
			refused(r, admin.Replay, got[0])
			first := r.expect(lease, "m1")[0]
			stands(r, first, relay.PlaceNone, 0)
			want := got[0].Message
			want.Replay = first.Message.Replay
			if diff := differ(want, first.Message); diff != "" || want.Replay == 0 {
				r.tb.Fatalf("a replay, under number %d, is not what was sent:\n%s", want.Replay, diff)
			}
			r.settle(lease, retrying(first, 0), sent(got[2])[0])
			r.settle(lease, sent(r.expect(lease, "m1")...)...)
			do(r, admin.Replay, got[0], got[1])
			for _, d := range r.take(lease, 2) {
				if d.Message.Replay <= want.Replay {
					r.tb.Fatalf("a replay has number %d, after %d", d.Message.Replay, want.Replay)
				}
			}
		}},
	}
	return tests
}

// parkHeadOf is parkHead that also returns what it received.
func (r *storeRig[Tx]) parkHeadOf(n int, head func(relay.Delivery) relay.Outcome, edit ...func(*relay.Claim)) (relay.Lease, []relay.Delivery) {
	r.tb.Helper()
	r.enqueue(messages("k", numbered(n)...)...)
	lease := r.acquire(edit...)
	got := r.expect(lease, numbered(n)...)
	r.settle(lease, append([]relay.Outcome{head(got[0])}, blocked(got[1:]...)...)...)
	return lease, got
}
