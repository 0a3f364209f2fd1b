package conformance

import (
	"context"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// parkedTests: what waits keeps what it had, and comes back when it may.
func parkedTests[Tx any]() []storeTest[Tx] {
	same := func(r *storeRig[Tx], got relay.Delivery, want relay.Delivery, attempts int) {
		r.tb.Helper()
		if diff := differ(want.Message, got.Message); diff != "" {
			r.tb.Fatalf("a parked message came back changed:\n%s", diff)
		}
		if !got.Parked || got.State != outbox.StatePending || got.Attempts != attempts || got.Seq != want.Seq {
			r.tb.Fatalf("it came as state %q, parked %v, %d attempts, number %d; want pending, parked, %d, %d",
				got.State, got.Parked, got.Attempts, got.Seq, attempts, want.Seq)
		}
	}
	return []storeTest[Tx]{
		{name: "a retried message comes back whole, with its attempts", run: func(r *storeRig[Tx]) {
			m := message("k", "a")
			m.ContentType, m.Headers = "text/plain", map[string]string{"traceparent": "00-ab-cd-01", "nul": "\x00", "empty": "", "🐎": "ü\nx"}
			m.Payload = []byte{0, 255, '\n', 0}
			r.enqueue(m)
			lease := r.acquire()
			first := r.expect(lease, "a")[0]
			r.settle(lease, retrying(first, 0))
			again := r.expect(lease, "a")[0]
			same(r, again, first, 1)
			r.settle(lease, retrying(again, 0))
			r.close(lease)
			lease = r.acquireFrom(r.second(), owner("two"))
			again = r.expect(lease, "a")[0]
			same(r, again, first, 2)
			r.settle(lease, sent(again)...)
			r.quiet(lease)
			r.quiet(r.acquire(owner("two")))
		}},
		{name: "a parked message received and not settled comes again", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a")...)
			lease := r.acquire()
			first := r.expect(lease, "a")[0]
			r.settle(lease, retrying(first, 0))
			r.expect(lease, "a")
			r.quiet(lease)
			same(r, r.expect(r.acquire(), "a")[0], first, 1)
		}},
		{name: "failed, expired and sent ones do not come back", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("", numbered(6)...)...)
			lease := r.acquire()
			got := r.expect(lease, numbered(6)...)
			r.settle(lease, failed(got[0]), as(outbox.StateExpired, got[1])[0], sent(got[2])[0],
				retrying(got[3], 0), retrying(got[4], 0), retrying(got[5], 0))
			parked := r.take(lease, 3)
			r.settle(lease, failed(parked[0]), as(outbox.StateExpired, parked[1])[0], sent(parked[2])[0])
			r.quiet(lease)
			fresh := r.acquire()
			r.closedKeys(fresh, nil)
			r.quiet(fresh)
		}},
		{name: "a blocked message comes whole once its key opens", run: func(r *storeRig[Tx]) {
			m := message("k", "b")
			m.Headers = map[string]string{"n": "9223372036854775807"}
			r.enqueue(message("k", "a"), m)
			lease := r.acquire()
			got := r.expect(lease, "a", "b")
			r.settle(lease, retrying(got[0], 0), blocked(got[1])[0])
			a := r.expect(lease, "a")
			r.quiet(lease)
			r.settle(lease, sent(a...)...)
			b := r.expect(lease, "b")[0]
			same(r, b, got[1], 0)
			r.settle(lease, retrying(b, 0))
			same(r, r.expect(lease, "b")[0], got[1], 1)
		}},
		{name: "everything of one settle or nothing", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a")...)
			r.enqueue(messages("other", "b")...)
			lease := r.acquire()
			got := r.expect(lease, "a", "b")
			ctx, cancel := context.WithCancel(r.ctx)
			cancel()
			if err := lease.Settle(ctx, []relay.Outcome{retrying(got[0], 0), sent(got[1])[0]}); err == nil {
				r.tb.Fatalf("Settle with a cancelled context succeeded")
			}
			fresh := r.acquire()
			r.expect(fresh, "a", "b")
			r.closedKeys(fresh, nil)
		}},
	}
}
