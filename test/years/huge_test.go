package years

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgstore"
	"github.com/postrider/postrider/test/internal/load"
)

// memoryLimit is what a relay may take at most, whatever it is given.
const memoryLimit = 128 << 20

// A transaction with very many messages delays nobody while it is open, and the
// relay hands it out within its memory.
func TestAHugeTransaction(t *testing.T) {
	w := newWorld(t)
	const keys = 1000
	n := testsize.Pick(100_000, 1_000_000)
	relay := w.relay("-sent", "1s")
	stop := background(t, &load.Load{Pool: w.pool, Rate: 100, Writers: 2, Size: 100, Name: "other"})
	relay.got(1)
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	enqueue := outbox.NewWriter(pgstore.Pgx{})
	for number := range n / keys {
		page := make([]outbox.Message, keys)
		for key := range page {
			page[key] = load.Message(fmt.Sprint("huge ", key), number+1, time.Time{}, 200)
		}
		if err := enqueue.Enqueue(t.Context(), tx, page...); err != nil {
			t.Fatal(err)
		}
	}
	before := relay.latest.Got
	relay.got(before + 100) // the others go on
	begun := time.Now()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	relay.got(n)
	took := time.Since(begun)
	committed := stop()
	relay.got(n + committed)
	eventually(t, "delete them", func() error {
		if left := w.rows(); left > 0 {
			return fmt.Errorf("%d rows are left", left)
		}
		return nil
	})
	exactly(t, n+committed, relay.stop())
	worst := time.Duration(0)
	for _, r := range relay.all {
		worst = max(worst, r.Worst)
	}
	t.Logf("%d messages of one transaction within about %s of its commit; the longest delay of %d others was %s; most memory %d MiB", n, took, committed, worst, relay.peak>>20)
	if relay.peak > memoryLimit {
		t.Errorf("the relay took %d bytes", relay.peak)
	}
}

// Payloads of the largest size do not add up in a relay's memory.
func TestHugePayloads(t *testing.T) {
	w := newWorld(t)
	n := testsize.Pick(30, 300)
	for i := range n {
		err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
			return outbox.NewWriter(pgstore.Pgx{}).Enqueue(context.WithoutCancel(t.Context()), tx, load.Message(fmt.Sprint("key ", i%10), i/10+1, time.Time{}, 8<<20))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	relay := w.relay("-sent", "0s", "-retry", "2")
	relay.got(n)
	eventually(t, "delete them", func() error {
		if left := w.rows(); left > 0 {
			return fmt.Errorf("%d rows are left", left)
		}
		return nil
	})
	exactly(t, n, relay.stop())
	t.Logf("%d messages of 8 MiB; most memory %d MiB", n, relay.peak>>20)
	if relay.peak > 2*memoryLimit {
		t.Errorf("the relay took %d bytes", relay.peak)
	}
}
