package poll_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
)

// heldSettle holds the answer to a settle of parked messages back, once armed.
type heldSettle struct {
	*pgxpool.Pool
	armed              bool // set before it is used
	committed, release chan struct{}
}

func (h *heldSettle) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	results := h.Pool.SendBatch(ctx, batch)
	if !h.armed || !strings.Contains(batch.QueuedQueries[0].SQL, "SET pos") {
		return results
	}
	return heldResults{results, h}
}

type heldResults struct {
	pgx.BatchResults
	held *heldSettle
}

func (r heldResults) Close() error {
	err := r.BatchResults.Close()
	close(r.held.committed)
	<-r.held.release
	return err
}

// A parked message that was handed out is given back as blocked, and is due
// again at once, as is the one behind it. Until the settle has returned the
// lease takes the first for handed out: it must not hand out the second.
func TestWhatWasGivenBackIsNotOvertaken(t *testing.T) {
	w := newWorld(t)
	db := &heldSettle{Pool: w.pool, committed: make(chan struct{}), release: make(chan struct{})}
	store, err := poll.New(poll.Config{Pool: db})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := store.Acquire(t.Context(), relay.Claim{Route: "route", Owner: "reader", TTL: time.Minute, Topics: []string{"**"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range []string{"1", "2", "3"} {
		w.enqueue(w.pool, "k", payload)
	}
	receive := func(max int) []relay.Delivery {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		got, err := lease.Receive(ctx, max)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	settle := func(outcomes ...relay.Outcome) {
		t.Helper()
		if err := lease.Settle(t.Context(), outcomes); err != nil {
			t.Fatal(err)
		}
	}
	all := receive(3)
	if len(all) != 3 {
		t.Fatalf("%d messages", len(all))
	}
	settle(relay.Outcome{Delivery: all[0], State: outbox.StateRetrying, Attempts: 1, RetryAfter: time.Millisecond},
		relay.Outcome{Delivery: all[1], State: outbox.StateBlocked},
		relay.Outcome{Delivery: all[2], State: outbox.StateBlocked})
	settle(relay.Outcome{Delivery: receive(1)[0], State: outbox.StateSent, Attempts: 2})
	second := receive(1)[0]

	db.armed = true
	settled := make(chan error, 1)
	go func() {
		settled <- lease.Settle(t.Context(), []relay.Outcome{{Delivery: second, State: outbox.StateBlocked}})
	}()
	<-db.committed
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond) // longer than parked messages go unasked for
	early, _ := lease.Receive(ctx, 10)
	cancel()
	close(db.release)
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
	order := ""
	for _, d := range append(early, receive(10)...) {
		order += string(d.Message.Payload)
	}
	if order != "23" {
		t.Errorf("handed out in the order %q, want 23", order)
	}
}
