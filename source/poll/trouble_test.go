package poll_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/relay"
)

// A transaction that has enqueued stays open while many others commit: none of
// them waits for it, and its own message comes as soon as it commits.
func TestAnOpenTransactionDelaysNobody(t *testing.T) {
	w := newWorld(t)
	stop := w.holdElsewhere(t.Context())
	defer stop()
	lease := w.acquire()
	open := w.begin()
	w.enqueue(open, "k", "late")
	began := time.Now()

	const others = 10_000
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range others / 4 / 100 {
				w.exec(`DO $$ BEGIN FOR i IN 1..100 LOOP PERFORM postrider.enqueue('t', ''); COMMIT; END LOOP; END $$`)
			}
		})
	}
	if _, err := w.receive(lease, others, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	writers.Wait()
	w.enqueue(w.pool, "", "last")
	if _, err := w.receive(lease, 1, 5*time.Second); err != nil {
		t.Fatal("beside the open transaction:", err)
	}
	// The rest of the time the gap is all that is looked for.
	for time.Since(began) < time.Duration(testsize.Pick(3, 30))*time.Second {
		w.look(lease)
	}
	w.commit(open)
	got, err := w.receive(lease, 1, 5*time.Second) // promised within a second
	if err != nil || string(got[0].Message.Payload) != "late" {
		t.Fatalf("after its commit: %v, %v", got, err)
	}
}

// Rolled-back numbers are given up although a transaction that never touched
// the log stays open, in this database and in another one.
func TestForeignTransactionsKeepNoGapsAlive(t *testing.T) {
	w := newWorld(t)
	stop := w.holdElsewhere(t.Context())
	defer stop()
	here := w.begin()
	if _, err := here.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		tx := w.begin()
		w.enqueue(tx, "", "rolled back")
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.enqueue(w.pool, "", "committed")
	writer := w.begin()
	w.enqueue(writer, "", "open")
	lease := w.acquire()
	if _, err := w.receive(lease, 1, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	w.unsettled(lease, 51) // the open writer may have drawn any of them
	w.commit(writer)
	if _, err := w.receive(lease, 1, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	w.unsettled(lease, 0)
	w.commit(here)
}

// unsettled waits until that many numbers are unsettled or missing, by what the
// database has of it.
func (w *world) unsettled(lease relay.Lease, want int) {
	w.tb.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		w.look(lease)
		var got int
		err := w.pool.QueryRow(w.tb.Context(), `SELECT coalesce(sum(upper(r) - lower(r)), 0)::int FROM (
			SELECT unnest(unsettled) AS r FROM postrider.cursor UNION ALL SELECT unnest(numbers) FROM postrider.gap) AS u`).Scan(&got)
		if err != nil {
			w.tb.Fatal(err)
		}
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			w.tb.Fatalf("%d numbers are unsettled, want %d", got, want)
		}
	}
}

// A transaction with very many messages commits after others were read: all of
// them come, before what was enqueued afterwards under their key, in bounded
// pages, and a restart in the middle repeats nothing that was settled.
func TestALargeTransactionCommitsLate(t *testing.T) {
	w := newWorld(t)
	bulk := testsize.Pick(30_000, 1_000_000)
	lease := w.acquire()
	tx := w.begin()
	_, err := tx.Exec(t.Context(), `INSERT INTO postrider.log_0 (id, topic, key, payload)
		SELECT gen_random_uuid(), 't', 'bulk', convert_to(i::text, 'UTF8') FROM generate_series(1, $1::int) AS i`, bulk)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		w.enqueue(w.pool, "other", strconv.Itoa(i))
	}
	if _, err := w.receive(lease, 10, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	w.look(lease)
	w.commit(tx)
	w.enqueue(w.pool, "bulk", strconv.Itoa(bulk+1))

	var order []int
	take := func(n int) {
		t.Helper()
		got, err := w.receive(lease, n, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range got {
			i, _ := strconv.Atoi(string(d.Message.Payload))
			order = append(order, i)
		}
	}
	take(bulk / 2)
	lease = w.acquire() // the relay restarts
	take(bulk + 1 - len(order))
	for i, n := range order {
		if n != i+1 {
			t.Fatalf("message %d of %d came as number %d", n, bulk, i+1)
		}
	}
	w.look(lease)
}

// The server crashes and loses commits that were read already, so numbers are
// given out again. A pooler may hide that: the lease has to notice by itself,
// and the next one delivers what was enqueued afterwards.
func TestCrashThatLosesCommits(t *testing.T) {
	server := pgtest.Server(t, "synchronous_commit=off", "wal_writer_delay=10s", "fsync=on", "checkpoint_timeout=1h")
	pool, err := pgxpool.New(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	w := &world{tb: t, pool: pool, inline: 1000}
	w.migrate()
	// A number of the sequence is logged for 32 at a time; past that, a lost
	// commit takes its number with it.
	for range 40 {
		w.enqueue(w.pool, "", "before")
	}
	w.exec(`CHECKPOINT`)
	lease := w.acquire()
	if _, err := w.receive(lease, 40, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	lost := 0
	for range 100 {
		w.enqueue(w.pool, "", "may be lost")
		lost++
	}
	if _, err := w.receive(lease, lost, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool.Reset() // as a pooler's new connections would look to us
	var kept int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM postrider.log_0`).Scan(&kept); err != nil {
		t.Fatal(err)
	}
	if kept == 140 {
		t.Fatal("the crash lost nothing, so this test shows nothing")
	}
	fresh := map[uuid.UUID]bool{}
	for range 150 {
		var id uuid.UUID
		if err := pool.QueryRow(t.Context(), `SELECT postrider.enqueue('t', 'after')`).Scan(&id); err != nil {
			t.Fatal(err)
		}
		fresh[id] = true
	}

	got, err := w.receive(lease, 1, 5*time.Second)
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the old lease received %d messages and %v, want an error", len(got), err)
	}
	t.Logf("%d commits lost; the old lease says: %v", 140-kept, err)
	lease = w.acquire()
	deadline := time.Now().Add(20 * time.Second)
	for len(fresh) > 0 && time.Now().Before(deadline) {
		got, err := w.receive(lease, 1, 5*time.Second)
		if err != nil {
			break
		}
		for _, d := range got {
			delete(fresh, d.Message.ID)
		}
	}
	if len(fresh) > 0 {
		t.Fatalf("%d messages enqueued after the crash did not come", len(fresh))
	}
}

// Numbers that count as done are given out again while nobody reads, and past
// the position, so that the sequence looks well. The messages are not passed
// over in silence, and the statement in the error brings them.
func TestNumbersGivenOutAgain(t *testing.T) {
	for _, sql := range []string{`TRUNCATE postrider.log_0 RESTART IDENTITY`, `DELETE FROM postrider.log_0`} {
		w := newWorld(t)
		for range 5 {
			w.enqueue(w.pool, "", "before")
		}
		lease := w.acquire()
		if _, err := w.receive(lease, 5, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := lease.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.exec(sql)
		w.exec(`ALTER SEQUENCE postrider.log_0_seq RESTART`)
		for range 7 {
			w.enqueue(w.pool, "", "after")
		}
		_, err := w.tryAcquire()
		if err == nil || !strings.Contains(err.Error(), "numbers from 1 on were given out again") {
			t.Fatalf("acquire: %v", err)
		}
		_, mend, _ := strings.Cut(err.Error(), "for the tables' owner: ")
		if _, err := w.pool.Exec(t.Context(), mend, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		if _, err := w.receive(w.acquire(), 7, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

// What a relay refuses to go on with.
func TestSequenceThatCannotBeTrusted(t *testing.T) {
	for _, test := range []struct{ name, sql, want string }{
		{"cache", `ALTER SEQUENCE postrider.log_0_seq CACHE 10`, "CACHE 1"},
		{"increment", `ALTER SEQUENCE postrider.log_0_seq INCREMENT 2`, "INCREMENT 1"},
		{"cycle", `ALTER SEQUENCE postrider.log_0_seq CYCLE`, "NO CYCLE"},
		{"set back", `SELECT setval('postrider.log_0_seq', 2)`, "setval"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			for range 5 {
				w.enqueue(w.pool, "", "m")
			}
			lease := w.acquire()
			if _, err := w.receive(lease, 5, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			if err := lease.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.exec(test.sql)
			_, err := w.tryAcquire()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("acquire: %v, want an error that says %q", err, test.want)
			}
		})
	}
}
