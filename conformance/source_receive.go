package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
		{name: "interrupted it loses nothing", run: interruptedReceive[Tx]},
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

// interruptedReceive cuts Receive short again and again, somewhere in its work:
// every message of the log and of the parked set still comes, once.
func interruptedReceive[Tx any](r *storeRig[Tx]) {
	const total = 240
	lease := r.acquire()
	all := numbered(total)
	enqueued, seen, parked := 0, 0, 0
	// The time given wanders around what a Receive takes here.
	allowed, end := 100*time.Microsecond, time.Now().Add(3*patience)
	for seen < total || parked < total {
		if time.Now().After(end) {
			r.tb.Fatalf("%d of %d came from the log, %d of them a second time from the parked set", seen, total, parked)
		}
		if enqueued < total { // a few at a time: one look finds less than it may
			r.enqueue(messages("", all[enqueued:enqueued+2]...)...)
			enqueued += 2
		}
		ctx, cancel := context.WithTimeout(r.ctx, allowed)
		got, err := lease.Receive(ctx, 50)
		cancel()
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) || len(got) > 0 {
				r.tb.Fatalf("Receive returned %v, %v", names(got), err)
			}
			allowed = min(allowed*5/4+time.Microsecond, time.Second)
			continue
		}
		allowed = allowed * 2 / 3
		var outcomes []relay.Outcome
		for _, d := range got {
			if d.Parked {
				parked++
				outcomes = append(outcomes, sent(d)...)
			} else {
				seen++
				outcomes = append(outcomes, retrying(d, 0))
			}
		}
		r.settle(lease, outcomes...)
	}
	r.quiet(lease)
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
