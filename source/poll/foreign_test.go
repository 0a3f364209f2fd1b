package poll_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// settle must record the outcomes.
func (w *world) settle(lease relay.Lease, outcomes ...relay.Outcome) {
	w.tb.Helper()
	if err := lease.Settle(w.tb.Context(), outcomes); err != nil {
		w.tb.Fatal(err)
	}
}

// A row with the largest number of all is left alone, and the numbers before it
// are read as ever.
func TestTheLargestNumberHarmsNobody(t *testing.T) {
	w := newWorld(t)
	lease := w.acquire()
	w.exec(`INSERT INTO postrider.log_0 (seq, id, topic, payload) VALUES (9223372036854775807, gen_random_uuid(), 't', 'largest')`)
	for _, payload := range []string{"first", "second"} {
		w.enqueue(w.pool, "", payload)
		got, err := w.receive(lease, 1, 5*time.Second)
		if err != nil || string(got[0].Message.Payload) != payload {
			t.Fatalf("received %v, %v, want %q", got, err, payload)
		}
	}
	w.look(lease)
}

// Whoever writes rows by himself may write any time of creation. The relay takes
// none later than the server's clock, by which it tells what has expired.
func TestNoMessageIsCreatedInTheFuture(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO postrider.log_0 (id, topic, payload, created_at) VALUES (gen_random_uuid(), 't', 'future', '2999-12-31')`)
	if _, err := w.pool.Exec(t.Context(), `INSERT INTO postrider.log_0 (id, topic, payload, created_at) VALUES (gen_random_uuid(), 't', '', '-infinity')`); err == nil {
		t.Error("a time that is none was taken")
	}
	w.exec(`INSERT INTO postrider.parked (route, shard, seq, state, due_at, key, id, topic, created_at, type, content_type, payload)
		VALUES ('route', 0, 1000, 'retrying', '-infinity', '', gen_random_uuid(), 't', '2999-12-31', '', '', 'parked')`)
	got, err := w.receive(w.acquire(), 2, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range got {
		if at := d.Message.CreatedAt; at.After(time.Now().Add(time.Minute)) {
			t.Errorf("%s was created at %s", d.Message.Payload, at)
		}
	}
}

// An operator may put a parked message off for ever.
func TestAMessageThatIsNeverDueHoldsNobodyUp(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO postrider.parked (route, shard, seq, state, due_at, key, id, topic, created_at, type, content_type, payload)
		VALUES ('route', 0, 1, 'scheduled', 'infinity', '', gen_random_uuid(), 't', now(), '', '', '')`)
	lease := w.acquire()
	w.enqueue(w.pool, "", "now")
	if _, err := w.receive(lease, 1, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	w.look(lease)
}

// Messages that waited as a number only, and whose rows somebody deleted from the
// log, fail with a reason, and hold nobody up.
func TestMessagesThatAreGoneFail(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO postrider.parked (route, shard, seq, state, closes, due_at, attempts, key, id, topic, created_at, type, content_type, payload)
		SELECT 'route', 0, i, CASE WHEN i < 1005 THEN 'blocked' ELSE 'retrying' END, true, '-infinity', 3, 'k' || i, gen_random_uuid(), 't', now(), '', '',
			CASE WHEN i = 1005 THEN ''::bytea END
		FROM generate_series(1001, 1005) AS i`)
	lease := w.acquire()
	var outcomes []relay.Outcome
	for _, d := range w.receiveSome(lease, 5) {
		if d.Seq == 1005 {
			if d.State != outbox.StatePending {
				t.Errorf("the one that is there came as state %q", d.State)
			}
			continue
		}
		if d.State != outbox.StateFailed || d.Released || !strings.Contains(d.Error, "gone from the log") || d.Place != relay.PlaceKept || d.Attempts != 3 {
			t.Errorf("number %d came as state %q, released %v, %q, place %d, %d attempts", d.Seq, d.State, d.Released, d.Error, d.Place, d.Attempts)
		}
		outcomes = append(outcomes, relay.Outcome{Delivery: d, State: d.State, Attempts: d.Attempts, Error: d.Error})
	}
	w.settle(lease, outcomes...)
	var failed int
	err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM postrider.parked WHERE state = 'failed' AND error LIKE '%gone from the log%'
		AND NOT closes AND due_at IS NULL`).Scan(&failed)
	if err != nil || failed != 4 {
		t.Errorf("%d messages are failed with the reason, %v, want 4", failed, err)
	}
}

// So does one that was in hand when its row was deleted; what came behind it goes
// on.
func TestAMessageInHandThatIsGoneFails(t *testing.T) {
	w := newWorld(t)
	lease := w.acquire()
	w.enqueue(w.pool, "k", "gone")
	w.enqueue(w.pool, "k", "next")
	got := w.receiveSome(lease, 2)
	w.exec(`DELETE FROM postrider.log_0 WHERE seq = $1`, got[0].Seq)
	w.settle(lease,
		relay.Outcome{Delivery: got[0], State: outbox.StateRetrying, Attempts: 1, RetryAfter: time.Hour, Error: "away"},
		relay.Outcome{Delivery: got[1], State: outbox.StateBlocked})
	again := w.receiveSome(lease, 2)
	if d := again[0]; d.Seq != got[0].Seq || !d.Released || d.Place != relay.PlaceKept || d.Message.Key != "k" || d.Message.ID != got[0].Message.ID {
		t.Errorf("of the failure the lease hears as %+v", d)
	}
	if d := again[1]; d.Seq != got[1].Seq || d.State != outbox.StatePending {
		t.Errorf("then came %+v", d)
	}
}

// A cursor that somebody set back makes the lease load its state anew, with every
// row counted once.
func TestACursorSetBackIsLoadedAnew(t *testing.T) {
	w := newWorld(t)
	lease := w.acquire()
	w.enqueue(w.pool, "k", "a")
	w.settle(lease, relay.Outcome{Delivery: w.receiveSome(lease, 1)[0], State: outbox.StateRetrying, Attempts: 1, RetryAfter: time.Hour})
	w.exec(`UPDATE postrider.cursor SET pos = 0`)
	lease = w.acquire()
	got := w.receiveSome(lease, 1)
	err := lease.Settle(t.Context(), []relay.Outcome{{Delivery: got[0], State: outbox.StateBlocked}})
	if err == nil || !strings.Contains(err.Error(), "set the cursor back") {
		t.Fatalf("settle: %v", err)
	}
	lease = w.acquire()
	if diff := cmp.Diff(map[string]int{"k": 1}, lease.ClosedKeys()); diff != "" {
		t.Errorf("closed keys (-want +got):\n%s", diff)
	}
	w.receiveSome(lease, 1)
}
