package poll_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
)

// Messages whose numbers were given out again count as done, and were not read.
// Cleaning leaves them where they are until that is mended, however much was
// cleaned before.
func TestCleaningLeavesNumbersGivenOutAgain(t *testing.T) {
	for _, before := range []int{5, 1500} {
		for _, again := range []string{`TRUNCATE postrider.log_0 RESTART IDENTITY`, `SELECT setval('postrider.log_0_seq', 3)`} {
			t.Run(fmt.Sprint(before, again), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				clean := func() {
					t.Helper()
					store, err := poll.New(poll.Config{Pool: w.pool}) // which looks at everything
					if err != nil {
						t.Fatal(err)
					}
					for more := true; more; {
						cleaned, err := store.Clean(t.Context(), relay.Retention{Sent: time.Nanosecond, Failed: relay.Keep})
						if err != nil {
							t.Fatal(err)
						}
						more = cleaned.More
					}
				}
				lease := w.acquire()
				w.exec(`INSERT INTO postrider.log_0 (id, topic, payload) SELECT gen_random_uuid(), 't', '' FROM generate_series(1, $1::int)`, before)
				if _, err := w.receive(lease, before, 20*time.Second); err != nil {
					t.Fatal(err)
				}
				w.look(lease)
				if err := lease.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				clean()
				w.exec(again)
				for range 7 {
					w.enqueue(w.pool, "", "after")
				}
				clean()
				if _, err := w.tryAcquire(); err == nil {
					t.Fatal("the lease is to be had")
				}
				// As an operator does: what the status says first, from the bottom up, since
				// the order must not matter.
				for range 3 {
					status, err := pgstore.NewAdmin(w.pool, "").Status(t.Context(), admin.StatusOptions{})
					if err != nil {
						t.Fatal(err)
					}
					if len(status.Log) == 0 {
						break
					}
					mend := status.Log[len(status.Log)-1].Mend
					t.Log(mend)
					if _, err := w.pool.Exec(t.Context(), mend, pgx.QueryExecModeSimpleProtocol); err != nil {
						t.Fatalf("%s: %v", mend, err)
					}
					clean()
				}
				lease = w.acquire()
				if _, err := w.receive(lease, 7, 20*time.Second); err != nil {
					t.Fatal(err)
				}
				w.look(lease)
				clean()
				var left int
				if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM postrider.log_0`).Scan(&left); err != nil || left > 0 {
					t.Errorf("%d messages are left (%v)", left, err)
				}
			})
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
