package years

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/test/internal/load"
)

func pick(short, full time.Duration) time.Duration {
	return time.Duration(testsize.Pick(int(short), int(full)))
}

// background runs a load until the function that it returns is called, which
// returns how many messages were committed.
func background(t *testing.T, l *load.Load) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	stop = sync.OnceValue(func() int {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return l.Committed()
	})
	t.Cleanup(func() { stop() })
	return stop
}

// A reader that keeps a snapshot for long keeps every dead row in place. The
// relay does not slow down for it, and once it is over the tables grow no more.
func TestALongReaderSlowsNothingDown(t *testing.T) {
	w := newWorld(t)
	span, held, retention := pick(12*time.Second, 30*time.Minute), pick(5*time.Second, 10*time.Minute), pick(2*time.Second, time.Minute)
	l := &load.Load{Pool: w.pool, Rate: testsize.Pick(300, 1000), Writers: 4, Size: 200, Name: "load"}
	relay := w.relay("-sent", retention.String(), "-retry", "50")
	relay.until("take the shards", func(r load.Report) error {
		if r.Held < 4 {
			return fmt.Errorf("%d are held", r.Held)
		}
		return nil
	})
	begun := time.Now()
	stop := background(t, l)
	at := func(d time.Duration) { time.Sleep(time.Until(begun.Add(d))) }

	at(span / 6)
	reader, err := w.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Exec(t.Context(), `SELECT count(*) FROM postrider.log_0`); err != nil {
		t.Fatal(err)
	}
	at(span/6 + held)
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Room that was dead is used again once the server has cleaned it up.
	var sizes []int
	for d := span/6 + held; d < span; d += max(span/60, time.Second) {
		at(d)
		sizes = append(sizes, w.bytes())
	}
	at(span)
	committed := stop()
	relay.got(committed)
	eventually(t, "delete what is old", func() error {
		if n := w.rows(); n > 0 {
			return fmt.Errorf("%d rows are left", n)
		}
		return nil
	})
	report := relay.stop()
	exactly(t, committed, report)
	if report.Cleaned != uint64(committed) || report.CleanFailures > 0 {
		t.Errorf("the relay says that it deleted %d of %d messages, with %d failures: %s", report.Cleaned, committed, report.CleanFailures, report.CleanError)
	}
	var sixths [6]time.Duration
	for i := range sixths {
		sixths[i] = p99(relay.all, begun, span/6*time.Duration(i), span/6*time.Duration(i+1))
	}
	first, last := sixths[0], sixths[5]
	t.Logf("%d messages in %s, slowest transaction %s; the reader was there from the second sixth on, for %s; p99 of each sixth %v; most memory %d MiB; tables from %d MiB when the reader ended to %d MiB",
		committed, span, l.Slowest(), held, sixths, relay.peak>>20, sizes[0]>>20, sizes[len(sizes)-1]>>20)
	if testsize.Full() {
		if last > first*3/2 {
			t.Errorf("p99 went from %s to %s", first, last)
		}
		if middle, end := sizes[len(sizes)/3], sizes[len(sizes)-1]; end > middle*11/10 {
			t.Errorf("the tables went on growing, from %d to %d bytes, after the reader had ended", middle, end)
		}
	}
}

// p99 is the median, over the reports made in a part of the run, of the 99th of
// 100 delays.
func p99(reports []load.Report, begun time.Time, from, to time.Duration) time.Duration {
	var all []time.Duration
	for _, r := range reports {
		if at := r.At.Sub(begun); r.Samples > 0 && at >= from && at < to {
			all = append(all, r.P99)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// Two relays that clean at once, as often as they can, while messages come: no
// deadlock, and no enqueueing that waits for a lock for long, as its own
// lock_timeout sees it. When the load ends the log is soon empty.
func TestCleaningDisturbsNobody(t *testing.T) {
	w := newWorld(t)
	timeout := pick(2*time.Second, 50*time.Millisecond) // on a busy machine whoever has a lock may not run
	l := &load.Load{
		Pool: w.connect(fmt.Sprintf("&lock_timeout=%d", timeout.Milliseconds())),
		Rate: testsize.Pick(1000, 5000), Writers: 8, Size: 200, Name: "load",
	}
	one, two := w.relay("-sent", "0s"), w.relay("-sent", "0s")
	stop := background(t, l)
	time.Sleep(pick(3*time.Second, 5*time.Minute))
	committed := stop()
	eventually(t, "empty the log", func() error {
		if n := w.rows(); n > 0 {
			return fmt.Errorf("%d rows are left", n)
		}
		return nil
	})
	a, b := one.stop(), two.stop()
	exactly(t, committed, a, b)
	if a.Cleaned+b.Cleaned != uint64(committed) || a.CleanFailures+b.CleanFailures > 0 {
		t.Errorf("the relays deleted %d and %d of %d messages, with %d and %d failures: %s %s",
			a.Cleaned, b.Cleaned, committed, a.CleanFailures, b.CleanFailures, a.CleanError, b.CleanError)
	}
	if n := w.number(`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
	t.Logf("%d messages, slowest transaction %s", committed, l.Slowest())
}

// With a broker that is away, and with a route that is paused, nothing is
// deleted that was not sent, though nothing is to be kept.
func TestNothingUnsentIsDeleted(t *testing.T) {
	w := newWorld(t)
	dead := w.relay("-sent", "0s", "-dead", "-route", "dead")
	well := w.relay("-sent", "0s", "-route", "well")
	paused := w.relay("-sent", "0s", "-route", "paused")
	all := func(r load.Report) error {
		if r.Held < 4 {
			return fmt.Errorf("%d shards are held", r.Held)
		}
		return nil
	}
	for _, r := range []*relay{dead, well, paused} {
		r.until("take the shards", all)
	}
	w.exec(`INSERT INTO postrider.route (name, paused_at) VALUES ('paused', now())`)
	paused.until("pause", func(r load.Report) error {
		if r.Held > 0 {
			return fmt.Errorf("%d shards are held", r.Held)
		}
		return nil
	})
	stop := background(t, &load.Load{Pool: w.pool, Rate: 500, Writers: 4, Size: 100, Name: "load"})
	time.Sleep(pick(2*time.Second, time.Minute))
	committed := stop()
	well.got(committed)
	time.Sleep(3 * time.Second) // they clean every second
	if n := w.rows(); n != committed {
		t.Errorf("%d of %d messages are left although two routes have none of them", n, committed)
	}
	dead.signal(syscall.SIGUSR2)
	dead.got(committed)
	time.Sleep(3 * time.Second)
	if n := w.rows(); n != committed {
		t.Errorf("%d of %d messages are left although a paused route has none of them", n, committed)
	}
	w.exec(`DELETE FROM postrider.route`)
	paused.got(committed)
	eventually(t, "delete them", func() error {
		if n := w.rows(); n > 0 {
			return fmt.Errorf("%d rows are left", n)
		}
		return nil
	})
	for _, r := range []*relay{dead, well, paused} {
		exactly(t, committed, r.stop())
	}
}
