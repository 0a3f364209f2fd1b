package poll_test

import (
	"context"
	"testing"
	"time"
)

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

// Blocked messages whose rows somebody deleted from the log are not in the way of
// others that are due.
func TestMessagesThatAreGoneHoldNobodyUp(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO postrider.parked (route, shard, seq, state, due_at, key, id, topic, created_at, type, content_type, payload)
		SELECT 'route', 0, i, CASE WHEN i < 1020 THEN 'blocked' ELSE 'retrying' END, '-infinity', 'k' || i, gen_random_uuid(), 't', now(), '', '',
			CASE WHEN i = 1020 THEN ''::bytea END
		FROM generate_series(1001, 1020) AS i`)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	got, err := w.acquire().Receive(ctx, 4)
	if err != nil || len(got) != 1 || got[0].Seq != 1020 {
		t.Fatalf("received %v, %v, want the one that is there", got, err)
	}
}
