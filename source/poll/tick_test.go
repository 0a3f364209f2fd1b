package poll_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
)

// heldPoll holds the answer to the next poll for new numbers back, once armed.
type heldPoll struct {
	*pgxpool.Pool
	armed          atomic.Bool
	asked, release chan struct{}
}

func (h *heldPoll) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := h.Pool.Query(ctx, sql, args...)
	if err != nil || !strings.Contains(sql, "UNION ALL SELECT -1") || !h.armed.CompareAndSwap(true, false) {
		return rows, err
	}
	held := &begunRows{Rows: rows, first: rows.Next(), begun: true} // the server has answered
	close(h.asked)
	<-h.release
	return held, nil
}

// begunRows are rows whose first Next was called already.
type begunRows struct {
	pgx.Rows
	first, begun bool
}

func (r *begunRows) Next() bool {
	if r.begun {
		r.begun = false
		return r.first
	}
	return r.Rows.Next()
}

// A lease that joins another's poll may have read on since that was answered.
// This must not look as if the database had gone back.
func TestAPollOlderThanThePage(t *testing.T) {
	w := newWorld(t)
	db := &heldPoll{Pool: w.pool, asked: make(chan struct{}), release: make(chan struct{})}
	store, err := poll.New(poll.Config{Pool: db})
	if err != nil {
		t.Fatal(err)
	}
	acquire := func(route string) relay.Lease {
		lease, err := store.Acquire(t.Context(), relay.Claim{Route: route, Owner: "reader", TTL: time.Minute, Topics: []string{"**"}})
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	quick, slow := acquire("quick"), acquire("slow")
	w.enqueue(w.pool, "", "1")
	w.enqueue(w.pool, "", "2")
	if got := w.receiveSome(quick, 1); len(got) != 1 { // and knows of one more
		t.Fatalf("%d messages", len(got))
	}
	w.receiveSome(slow, 2)

	db.armed.Store(true)
	polled := make(chan error, 1)
	go func() {
		_, err := slow.Receive(t.Context(), 10)
		polled <- err
	}()
	<-db.asked
	w.enqueue(w.pool, "", "3")
	if got := w.receiveSome(quick, 2); len(got) != 2 {
		t.Fatalf("%d messages", len(got))
	}
	received := make(chan error, 1)
	go func() {
		_, err := quick.Receive(t.Context(), 10)
		received <- err
	}()
	joined := time.After(50 * time.Millisecond) // nothing tells when it has; later it would ask anew
	<-joined
	close(db.release)
	if err := <-polled; err != nil {
		t.Errorf("the lease that asked: %v", err)
	}
	w.enqueue(w.pool, "", "4")
	if err := <-received; err != nil {
		t.Errorf("the lease that joined: %v", err)
	}
}
