package poll_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
)

// Messages whose numbers were given out again count as done, and were not read.
// Cleaning leaves them where they are until that is mended.
func TestCleaningLeavesNumbersGivenOutAgain(t *testing.T) {
	w := newWorld(t)
	lease := w.acquire()
	for range 5 {
		w.enqueue(w.pool, "", "before")
	}
	if _, err := w.receive(lease, 5, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	w.look(lease)
	if err := lease.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.exec(`TRUNCATE postrider.log_0 RESTART IDENTITY`)
	for range 7 {
		w.enqueue(w.pool, "", "after")
	}
	store, err := poll.New(poll.Config{Pool: w.pool})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if cleaned, err := store.Clean(t.Context(), relay.Retention{Sent: time.Nanosecond, Failed: relay.Keep}); err != nil || cleaned.Log != 0 {
			t.Errorf("%+v, %v", cleaned, err)
		}
	}
}

// Somebody inserts a row with a number ahead of the sequence. What the sequence
// gives out before it gets there is not taken for rolled back.
func TestANumberAheadOfTheSequence(t *testing.T) {
	w := newWorld(t)
	for range 5 {
		w.enqueue(w.pool, "", "before")
	}
	lease := w.acquire()
	if _, err := w.receive(lease, 5, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	w.look(lease)
	w.exec(`INSERT INTO postrider.log_0 (seq, id, topic, payload) VALUES (25, gen_random_uuid(), 't', 'chosen')`)
	w.enqueue(w.pool, "", "the sequence is seen to move")
	if _, err := w.receive(lease, 2, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := w.receive(lease, 1, 10*time.Second); err == nil || !strings.Contains(err.Error(), "would be taken for old ones") {
		t.Fatalf("the lease goes on: %v", err)
	}
	for range 3 {
		w.enqueue(w.pool, "", "after")
	}
	if err := lease.Settle(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := lease.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := w.tryAcquire()
	if err == nil {
		t.Fatal("the next lease is to be had")
	}
	_, mend, _ := strings.Cut(err.Error(), "for the tables' owner: ")
	if _, err := w.pool.Exec(t.Context(), mend, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	if _, err := w.receive(w.acquire(), 3, 10*time.Second); err != nil {
		t.Fatal(err)
	}
}
