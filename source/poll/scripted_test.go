package poll_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
)

// Rules that random writers seldom meet: each script passes as it is, and fails
// with its mistake planted.
func TestScripts(t *testing.T) {
	for _, script := range []struct {
		name    string
		run     func(w *world) error
		mistake func(sql string) string
	}{
		{"polling an empty log first", emptyLogFirst,
			replace(`CASE WHEN is_called THEN last_value ELSE last_value - 1 END`, `last_value`)},
		{"a number drawn slowly by a transaction's first statement", slowFirstStatement,
			replace(`nextval(CASE WHEN pg_current_xact_id() IS NOT NULL THEN 'postrider.log_0_seq'::regclass END)`, `nextval('postrider.log_0_seq')`)},
		{"a writer that the snapshot does not list", unlistedWriter,
			replace(`pg_current_snapshot()::text`, `regexp_replace(pg_current_snapshot()::text, ':\d+:', ':9223372036854775807:')`)},
		{"a transaction that commits in the middle of a pass", commitDuringPass,
			replace(`expires, xid FROM`, `expires, '0'::xid8 FROM`)},
		{"a settle that waits for a takeover", settleDuringTakeover, func(sql string) string {
			if !strings.Contains(sql, "SET pos = $4") {
				return sql
			}
			sql = strings.Replace(sql, `ctid = $10::text::tid`, `$10::text IS NOT NULL`, 1) // its place would tell, too
			return strings.Replace(sql, `WHERE route = $1 AND shard = $2 AND token = $3`,
				`WHERE route = $1 AND shard = $2 AND EXISTS (SELECT FROM "postrider".cursor WHERE route = $1 AND shard = $2 AND token = $3)`, 1)
		}},
	} {
		t.Run(script.name, func(t *testing.T) {
			if err := script.run(newScriptWorld(t, nil)); err != nil {
				t.Errorf("as it is: %v", err)
			}
			if err := script.run(newScriptWorld(t, script.mistake)); err == nil {
				t.Error("with the mistake: nothing was noticed")
			} else {
				t.Logf("noticed: %v", err)
			}
		})
	}
}

func newScriptWorld(t testing.TB, rewrite func(string) string) *world {
	w := newWorld(t)
	w.rewrite = rewrite
	return w
}

func (w *world) acquire() relay.Lease {
	w.tb.Helper()
	lease, err := w.tryAcquire()
	if err != nil {
		w.tb.Fatal(err)
	}
	return lease
}

func (w *world) tryAcquire() (relay.Lease, error) {
	store, err := poll.New(poll.Config{Pool: rewriting{w.pool, w.rewrite}, InlineGaps: w.inline, PageSize: w.page})
	if err != nil {
		return nil, err
	}
	return store.Acquire(w.tb.Context(), relay.Claim{Route: "route", Owner: "reader", TTL: time.Minute, Topics: []string{"**"}})
}

// receive collects deliveries until there are want of them, settling as it
// goes, or the time is over.
func (w *world) receive(lease relay.Lease, want int, within time.Duration) ([]relay.Delivery, error) {
	ctx, cancel := context.WithTimeout(w.tb.Context(), within)
	defer cancel()
	var all []relay.Delivery
	for len(all) < want {
		got, err := lease.Receive(ctx, 5000)
		if ctx.Err() != nil {
			return all, fmt.Errorf("%d of %d messages came within %s", len(all), want, within)
		}
		if err != nil {
			return all, err
		}
		all = append(all, got...)
		outcomes := make([]relay.Outcome, len(got))
		for i, d := range got {
			outcomes[i] = relay.Outcome{Delivery: d, State: outbox.StateSent}
		}
		if err := lease.Settle(w.tb.Context(), outcomes); err != nil {
			return all, err
		}
	}
	return all, nil
}

// look polls for a while, expecting nothing, and settles, so that what is
// missing has been looked for with a fence.
func (w *world) look(lease relay.Lease) {
	w.tb.Helper()
	for range 3 {
		if got, err := w.receive(lease, 1, 100*time.Millisecond); len(got) > 0 {
			w.tb.Fatalf("received %v, %v, want nothing", got, err)
		}
		if err := lease.Settle(w.tb.Context(), nil); err != nil {
			w.tb.Fatal(err)
		}
	}
}

func (w *world) enqueue(db interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, key, payload string) {
	w.tb.Helper()
	var id string
	if err := db.QueryRow(w.tb.Context(), `SELECT postrider.enqueue('t', convert_to($2, 'UTF8'), $1)::text`, key, payload).Scan(&id); err != nil {
		w.tb.Fatal(err)
	}
}

func (w *world) begin() pgx.Tx {
	w.tb.Helper()
	tx, err := w.pool.Begin(w.tb.Context())
	if err != nil {
		w.tb.Fatal(err)
	}
	return tx
}

func (w *world) commit(tx pgx.Tx) {
	w.tb.Helper()
	if err := tx.Commit(w.tb.Context()); err != nil {
		w.tb.Fatal(err)
	}
}

func emptyLogFirst(w *world) error {
	lease := w.acquire()
	w.look(lease)
	w.enqueue(w.pool, "", "first")
	_, err := w.receive(lease, 1, 2*time.Second)
	return err
}

// The first statement of a transaction is an enqueue that takes long between
// drawing its number and whatever the table's defaults do next.
func slowFirstStatement(w *world) error {
	draw := `nextval(CASE WHEN pg_current_xact_id() IS NOT NULL THEN 'postrider.log_0_seq'::regclass END)`
	if w.rewrite != nil {
		draw = w.rewrite(draw)
	}
	w.exec(`CREATE FUNCTION slow_number() RETURNS bigint LANGUAGE plpgsql AS $$
		DECLARE n bigint := ` + draw + `;
		BEGIN PERFORM pg_sleep(1.5); RETURN n; END $$`)
	lease := w.acquire()
	w.look(lease) // it takes a while until it looks again whether somebody has changed the default
	w.exec(`ALTER TABLE postrider.log_0 ALTER seq SET DEFAULT slow_number()`)
	// Drawing a number that the server has to log gives its transaction an id;
	// it logs 32 at a time, so the next ones do not.
	w.exec(`SELECT nextval('postrider.log_0_seq')`)
	done := make(chan error, 1)
	go func() {
		_, err := w.pool.Exec(w.tb.Context(), `INSERT INTO postrider.log_0 (id, topic, payload) VALUES (gen_random_uuid(), 't', '')`)
		done <- err
	}()
	w.look(lease)
	if err := <-done; err != nil {
		w.tb.Fatal(err)
	}
	_, err := w.receive(lease, 1, 2*time.Second)
	return err
}

// A statement reads while the newest transaction of the cluster is open, and
// the fence is taken before what it read is dealt with.
func unlistedWriter(w *world) error {
	// Other transactions would push the snapshot's end past the writer's id.
	server := pgtest.Server(w.tb)
	pool, err := pgxpool.New(w.tb.Context(), server.URL("postgres"))
	if err != nil {
		w.tb.Fatal(err)
	}
	w.tb.Cleanup(pool.Close)
	w.pool = pool
	w.migrate()

	mistake := w.rewrite
	reads := make(chan struct{}, 100)
	w.rewrite = func(sql string) string {
		slow := replace(`SELECT 0::bigint, pg_current_snapshot()::text`, `SELECT 0::bigint, left(pg_sleep(0.5)::text, 0) || pg_current_snapshot()::text`)(sql)
		if slow != sql {
			reads <- struct{}{}
		}
		if mistake == nil {
			return slow
		}
		return mistake(slow)
	}
	lease := w.acquire()
	tx := w.begin()
	w.enqueue(tx, "", "late")
	received := make(chan []relay.Delivery, 1)
	go func() {
		ctx, cancel := context.WithTimeout(w.tb.Context(), 2*time.Second)
		defer cancel()
		got, _ := lease.Receive(ctx, 10)
		received <- got
	}()
	<-reads // finds the number missing
	<-reads // looks for it again, and meanwhile
	w.waitFor(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep')`)
	if err := lease.Settle(w.tb.Context(), nil); err != nil {
		w.tb.Fatal(err)
	}
	if got := <-received; len(got) > 0 {
		w.tb.Fatalf("received %v before the commit", got)
	}
	w.commit(tx)
	_, err = w.receive(lease, 1, 3*time.Second)
	return err
}

// A transaction has numbers that a pass looks for in two statements, and commits
// between them: what the second one finds has to wait for what the first one
// was too early for. Without the transaction's id nothing tells.
func commitDuringPass(w *world) error {
	w.inline, w.page = 1, 1
	tx := w.begin()
	for _, payload := range []string{"first", "second"} {
		w.enqueue(tx, "k", payload)
		w.enqueue(w.pool, "", "between") // so that the numbers do not follow each other
	}
	lease := w.acquire()
	if _, err := w.receive(lease, 2, 5*time.Second); err != nil {
		w.tb.Fatal(err)
	}
	w.look(lease)

	// The relay restarts, and looks for all missing numbers first.
	mistake := w.rewrite
	statements := 0
	w.rewrite = func(sql string) string {
		if strings.Contains(sql, `'0'::xid8`) { // a statement of a pass
			if statements++; statements == 2 {
				w.commit(tx)
			}
		}
		if mistake == nil {
			return sql
		}
		return mistake(sql)
	}
	got, err := w.receive(w.acquire(), 2, 5*time.Second)
	if err != nil {
		return err
	}
	if statements < 2 {
		w.tb.Fatalf("%d statements looked for missing numbers: not what this is about", statements)
	}
	for i, want := range []string{"first", "second"} {
		if payload := string(got[i].Message.Payload); payload != want {
			return fmt.Errorf("message %d of the key is %q", i+1, payload)
		}
	}
	return nil
}

// A relay settles while another one takes its shard over: the settle waits for
// the takeover's commit and then has to find itself fenced.
func settleDuringTakeover(w *world) error {
	w.enqueue(w.pool, "k", "m")
	lease := w.acquire()
	got, err := lease.Receive(w.tb.Context(), 10)
	if err != nil {
		return err
	}
	takeover := w.begin()
	if _, err := takeover.Exec(w.tb.Context(), `UPDATE postrider.cursor SET token = gen_random_uuid(), owner = 'another'`); err != nil {
		w.tb.Fatal(err)
	}
	settled := make(chan error, 1)
	go func() {
		settled <- lease.Settle(w.tb.Context(), []relay.Outcome{{Delivery: got[0], State: outbox.StateFailed, Error: "stale", Attempts: 1}})
	}()
	w.waitFor(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	w.commit(takeover)
	err = <-settled
	var parked int
	if err := w.pool.QueryRow(w.tb.Context(), `SELECT count(*) FROM postrider.parked`).Scan(&parked); err != nil {
		w.tb.Fatal(err)
	}
	if !errors.Is(err, relay.ErrFenced) || parked != 0 {
		return fmt.Errorf("settle returned %v and wrote %d rows", err, parked)
	}
	// The other way of settling, without parking anything.
	if err := lease.Settle(w.tb.Context(), nil); !errors.Is(err, relay.ErrFenced) {
		return fmt.Errorf("a renewal returned %v", err)
	}
	return nil
}

// waitFor waits until the query returns true.
func (w *world) waitFor(sql string, args ...any) {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(w.tb.Context(), 30*time.Second)
	defer cancel()
	for {
		var ok bool
		if err := w.pool.QueryRow(ctx, sql, args...).Scan(&ok); err != nil {
			w.tb.Fatalf("waiting for %s: %v", strings.TrimSpace(sql), err)
		}
		if ok {
			return
		}
		_ = pause(ctx, 5*time.Millisecond)
	}
}
