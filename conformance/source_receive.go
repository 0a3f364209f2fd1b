package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// receiveTests: waiting, limits, order, and nothing twice.
func receiveTests[Tx any]() []storeTest[Tx] {
	return []storeTest[Tx]{
		{name: "waits for a commit", run: func(r *storeRig[Tx]) {
			lease := r.acquire()
			type answer struct {
				ds  []relay.Delivery
				err error
			}
			answers := make(chan answer, 1)
			go func() {
				ctx, cancel := context.WithTimeout(r.ctx, patience)
				defer cancel()
				ds, err := lease.Receive(ctx, 10)
				answers <- answer{ds, err}
			}()
			select {
			case a := <-answers:
				r.tb.Fatalf("Receive returned %v, %v from an empty store", names(a.ds), a.err)
			case <-time.After(silence):
			}
			r.enqueue(messages("k", "a")...)
			a := <-answers
			r.ok("receive", a.err)
			if !slices.Equal(names(a.ds), []string{"a"}) {
				r.tb.Fatalf("received %v, want a", names(a.ds))
			}
		}},
		{name: "ends with its context and goes on afterwards", run: func(r *storeRig[Tx]) {
			lease := r.acquire()
			r.quiet(lease)
			ctx, cancel := context.WithCancel(r.ctx)
			cancel()
			if got, err := lease.Receive(ctx, 1); !errors.Is(err, context.Canceled) || len(got) > 0 {
				r.tb.Fatalf("Receive with a cancelled context returned %v, %v", names(got), err)
			}
			for i := range 5 { // cancelled somewhere in the middle of its work
				ctx, cancel := context.WithTimeout(r.ctx, time.Duration(i)*time.Millisecond)
				_, err := lease.Receive(ctx, 1)
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					r.tb.Fatalf("Receive returned %v, want the context's end", err)
				}
			}
			r.enqueue(messages("k", "a")...)
			r.settle(lease, sent(r.expect(lease, "a")...)...)
		}},
		{name: "never more than asked for", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("", numbered(25)...)...)
			lease := r.acquire()
			var all []string
			for _, n := range []int{1, 2, 7, 3, 1, 11} {
				all = append(all, names(r.take(lease, n))...)
			}
			if !slices.Equal(all, numbered(25)) {
				r.tb.Fatalf("received %v", all)
			}
			r.quiet(lease)
		}},
		{name: "never more than asked for, parked or not", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("", numbered(10)...)...)
			lease := r.acquire()
			var outcomes []relay.Outcome
			for _, d := range r.take(lease, 10) {
				outcomes = append(outcomes, retrying(d, 0))
			}
			r.settle(lease, outcomes...)
			r.enqueue(messages("", "m11", "m12", "m13", "m14", "m15")...)
			got := r.take(lease, 3)
			for range 6 {
				got = append(got, r.receive(lease, 2)...)
			}
			r.take(lease, 15-len(got))
			r.quiet(lease)
		}},
		{name: "a page boundary neither repeats nor skips", run: func(r *storeRig[Tx]) {
			all := numbered(2100)
			r.enqueue(messages("k", all...)...)
			lease := r.acquire()
			var got []string
			for len(got) < len(all) {
				ds := r.receive(lease, 500)
				got = append(got, names(ds)...)
				r.settle(lease, sent(ds...)...)
			}
			if !slices.Equal(got, all) {
				r.tb.Fatalf("received %d messages, not the %d in order", len(got), len(all))
			}
			r.quiet(lease)
		}},
		{name: "nothing twice while it is unsettled", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a", "b")...)
			lease := r.acquire()
			got := r.expect(lease, "a", "b")
			r.quiet(lease)
			r.settle(lease)
			r.quiet(lease)
			r.settle(lease, sent(got[1])...)
			r.quiet(lease)
			r.enqueue(messages("k", "c")...)
			r.expect(lease, "c")
			r.settle(lease, retrying(got[0], 0))
			r.expect(lease, "a")
			r.quiet(lease)
		}},
		{name: "while another goroutine settles", run: receiveBesideSettle[Tx]},
		{name: "a retry put off is not handed out by a Receive under way", run: putOffBesideReceive[Tx]},
	}
}

// receiveBesideSettle has a producer, a receiver and a settler at work at once.
func receiveBesideSettle[Tx any](r *storeRig[Tx]) {
	const total, keys = 300, 3
	lease := r.acquire()
	failures := make(chan error, 3)
	received := make(chan []relay.Delivery, total)

	go func() {
		for i := range total {
			tx, err := r.h.Begin(r.ctx)
			if err == nil {
				key := fmt.Sprint("k", i%keys)
				err = errors.Join(r.writer.Enqueue(r.ctx, tx, message(key, fmt.Sprintf("%04d", i))), r.h.Commit(r.ctx, tx))
			}
			if err != nil {
				failures <- fmt.Errorf("enqueue: %w", err)
				return
			}
		}
	}()
	go func() {
		defer close(received)
		ctx, cancel := context.WithTimeout(r.ctx, 3*patience)
		defer cancel()
		for n := 0; n < total; {
			got, err := lease.Receive(ctx, 7)
			if err != nil {
				failures <- fmt.Errorf("receive after %d: %w", n, err)
				return
			}
			n += len(got)
			received <- got
		}
	}()
	last := map[string]string{}
	for got := range received {
		for _, d := range got {
			if d.Message.Type <= last[d.Message.Key] {
				r.tb.Fatalf("key %q: %s came after %s", d.Message.Key, d.Message.Type, last[d.Message.Key])
			}
			last[d.Message.Key] = d.Message.Type
		}
		r.settle(lease, sent(got...)...)
	}
	select {
	case err := <-failures:
		r.tb.Fatalf("%v", err)
	default:
	}
	r.quiet(lease)
	r.quiet(r.acquire())
}

// putOffBesideReceive has messages that are due retried in an hour, while a
// Receive is looking for due ones all the time: none comes a second time.
func putOffBesideReceive[Tx any](r *storeRig[Tx]) {
	const total = 150
	r.enqueue(messages("", numbered(total)...)...)
	lease := r.acquire()
	var outcomes []relay.Outcome
	for _, d := range r.take(lease, total) {
		outcomes = append(outcomes, retrying(d, 0))
	}
	r.settle(lease, outcomes...)

	ctx, cancel := context.WithCancel(r.ctx)
	received := make(chan relay.Delivery, 2*total)
	var failure error
	go func() {
		defer close(received)
		for {
			got, err := lease.Receive(ctx, 2)
			if err != nil {
				failure = err
				return
			}
			for _, d := range got {
				received <- d
			}
		}
	}()
	seen := map[string]bool{}
	for range total {
		var d relay.Delivery
		select {
		case d = <-received:
		case <-time.After(patience):
			r.tb.Errorf("%d of %d came", len(seen), total)
		}
		if seen[d.Message.Type] || d.Message.Type == "" {
			break
		}
		seen[d.Message.Type] = true
		r.settle(lease, retrying(d, time.Hour))
	}
	time.AfterFunc(silence, cancel)
	for d := range received {
		r.tb.Errorf("%s was handed out again", d.Message.Type)
	}
	if !errors.Is(failure, context.Canceled) {
		r.tb.Errorf("Receive ended with %v", failure)
	}
	if len(seen) != total {
		r.tb.Errorf("%d of %d came once", len(seen), total)
	}
}

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
