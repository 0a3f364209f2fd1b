package poll_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// Due times and leases go by the server's clock: this process's own is many
// years behind here (a bubble of synctest begins in the year 2000) and leaps.
func TestTheClientsClockIsWrong(t *testing.T) {
	url := pgtest.Database(t)
	synctest.Test(t, func(t *testing.T) {
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		w := &world{tb: t, pool: pool, inline: 1000}
		w.migrate()
		var off time.Duration
		var server time.Time
		if err := pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&server); err != nil {
			t.Fatal(err)
		}
		if off = time.Until(server); off < 24*time.Hour {
			t.Fatalf("the clocks differ by %s only", off)
		}

		w.exec(`SELECT postrider.enqueue('t', 'later', not_before => clock_timestamp() + interval '700 ms')`)
		w.exec(`SELECT postrider.enqueue('t', 'never', expires => clock_timestamp() - interval '1 ms')`)
		lease := w.acquire()
		settle := func(o relay.Outcome) {
			t.Helper()
			if err := lease.Settle(t.Context(), []relay.Outcome{o}); err != nil {
				t.Fatal(err)
			}
		}
		// Without a time-out: it would be over at once by the clock of the bubble.
		receive := func() relay.Delivery {
			t.Helper()
			got, err := lease.Receive(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			return got[0]
		}
		for range 2 {
			d := receive()
			want := map[string]outbox.State{"later": outbox.StateScheduled, "never": outbox.StateExpired}[string(d.Message.Payload)]
			if d.State != want {
				t.Errorf("message %q is %s, want %s", d.Message.Payload, d.State, want)
			}
			settle(relay.Outcome{Delivery: d, State: d.State})
		}
		late := func() (is bool) {
			t.Helper()
			err := pool.QueryRow(t.Context(), `SELECT bool_and(due_at <= clock_timestamp()) FROM postrider.parked WHERE due_at IS NOT NULL`).Scan(&is)
			if err != nil {
				t.Fatal(err)
			}
			return is
		}
		d := receive()
		if !late() {
			t.Error("a scheduled message came before its time")
		}
		settle(relay.Outcome{Delivery: d, State: outbox.StateRetrying, Attempts: 1, RetryAfter: 700 * time.Millisecond})
		if late() {
			t.Error("a retry is due at once")
		}
		d = receive()
		if !late() {
			t.Error("a retry came before its time")
		}
		settle(relay.Outcome{Delivery: d, State: outbox.StateSent})
	})
}
