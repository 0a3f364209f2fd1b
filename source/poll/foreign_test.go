package poll_test

import (
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
