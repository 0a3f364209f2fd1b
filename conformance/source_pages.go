package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// pageTests: how much comes at once, and what is called back.
func pageTests[Tx any]() []storeTest[Tx] {
	return []storeTest[Tx]{
		{name: "a page of large messages ends early", run: func(r *storeRig[Tx]) {
			const n, size = 20, 1 << 20
			var all []outbox.Message
			for i := range n {
				m := message("k", fmt.Sprint(i))
				m.Payload = bytes.Repeat([]byte{'x'}, size)
				all = append(all, m)
			}
			r.enqueue(all...)
			lease := r.acquire()
			r.largePages(lease, n, size)
			r.close(lease) // what was handed out comes again
			lease = r.acquire(owner("two"))
			got := r.largePages(lease, n, size)
			var outcomes []relay.Outcome
			for _, d := range got {
				outcomes = append(outcomes, pending(d, time.Millisecond))
			}
			r.settle(lease, outcomes...)
			r.largePages(lease, n, size)
		}},
		{name: "pending messages are called back", run: func(r *storeRig[Tx]) {
			r.enqueue(message("", "a"), message("", "b"), message("k", "c"), message("k", "d"), message("", "e"))
			lease := r.acquire()
			recaller, ok := lease.(relay.Recaller)
			if !ok {
				r.tb.Skip("the store cannot")
			}
			got := r.expect(lease, "a", "b", "c", "d", "e")
			r.settle(lease, pending(got[0], time.Hour), pending(got[1], time.Hour), pending(got[2], time.Hour), blocked(got[3])[0], retrying(got[4], time.Hour))
			r.quiet(lease)
			numbers := func(ds ...relay.Delivery) (seqs []int64) {
				for _, d := range ds {
					seqs = append(seqs, d.Seq)
				}
				return append(seqs, 1<<40)
			}
			r.ok("recall", recaller.Recall(r.ctx, numbers(got[1])))
			r.expect(lease, "b")
			// What waits behind another one, and what is retried, keeps its time.
			r.ok("recall", recaller.Recall(r.ctx, numbers(got[2], got[3], got[4])))
			c := r.expect(lease, "c")
			r.quiet(lease)
			r.settle(lease, sent(c...)...)
			r.expect(lease, "d")
			r.ok("recall", recaller.Recall(r.ctx, numbers(c[0]))) // it has gone
			r.quiet(lease)
		}},
		{name: "calling back is fenced", run: func(r *storeRig[Tx]) {
			r.enqueue(message("", "a"))
			lease := r.acquire()
			recaller, ok := lease.(relay.Recaller)
			if !ok {
				r.tb.Skip("the store cannot")
			}
			got := r.expect(lease, "a")
			r.settle(lease, pending(got[0], time.Hour))
			other := r.acquire() // the same owner takes over at once
			if err := recaller.Recall(r.ctx, []int64{got[0].Seq}); err == nil {
				r.tb.Fatal("a lease that was lost called a message back")
			}
			r.quiet(other)
			r.ok("recall", other.(relay.Recaller).Recall(r.ctx, []int64{got[0].Seq}))
			r.expect(other, "a")
		}},
	}
}

// largePages receives n messages of that size, of which no page may have many
// more bytes than it should. Those of one page may come in several calls.
func (r *storeRig[Tx]) largePages(lease relay.Lease, n, size int) (all []relay.Delivery) {
	r.tb.Helper()
	var want, got []string
	for len(all) < n {
		page := r.receive(lease, 1000)
		if most := relay.PageBytes/size + 1; len(page) > most {
			r.tb.Fatalf("%d messages of %d bytes at once, want at most %d", len(page), size, most)
		}
		all = append(all, page...)
	}
	for i, d := range all {
		want, got = append(want, fmt.Sprint(i)), append(got, d.Message.Type)
	}
	if !slices.Equal(got, want) {
		r.tb.Fatalf("came %q", got)
	}
	return all
}
