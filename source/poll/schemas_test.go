package poll_test

import (
	"testing"

	"github.com/google/uuid"
)

// Two relays of one process, of the same name, serve routes of the same name in
// two schemas whose names differ in the case of letters only. Each sends what is
// in its own, and what one's sink does is nothing to the other one.
func TestTwoSchemasInOneProcessShareNothing(t *testing.T) {
	pool := open(t)
	upper, lower := newOffice(t, pool, "Post", 2, "route"), newOffice(t, pool, "post", 2, "route")
	upper.routes["route"].refuse = true
	upper.enqueue(50, "T")
	lower.enqueue(70, "t")
	a, stopA := upper.open()
	b, stopB := lower.open()
	for _, o := range []*office{upper, lower} {
		o.await("everything is tried", func() bool { return o.lacking("route") == 0 })
	}
	lower.await("it is recorded", func() bool { return lower.count(`SELECT count(*) FROM {s}.messages WHERE state = 'sent'`) == 70 })
	lower.exec(`UPDATE {s}.cursor SET token = gen_random_uuid()`) // the other one keeps its leases
	lower.enqueue(10, "t")
	lower.await("it goes on with new leases", func() bool { return lower.lacking("route") == 0 })
	if err := stopA(); err != nil {
		t.Error(err)
	}
	lower.enqueue(10, "t") // and this one goes on when the other one is stopped
	lower.await("the rest", func() bool { return lower.lacking("route") == 0 })
	_ = stopB()
	if a, b := a.Stats().Routes[0], b.Stats().Routes[0]; a.Sent != 0 || a.LeasesLost != 0 || b.Retried != 0 || b.LeasesLost == 0 {
		t.Errorf("figures of the one %+v, of the other %+v", a, b)
	}
	for _, o := range []*office{upper, lower} {
		own := map[uuid.UUID]bool{}
		for _, id := range o.ids {
			own[id] = true
		}
		for id := range o.routes["route"].times() {
			if !own[id] {
				t.Errorf("schema %s: %s of the other one came", o.schema.Name(), id)
			}
		}
	}
	if n := upper.count(`SELECT count(*) FROM {s}.parked`); n != 50 {
		t.Errorf("%d messages are parked in schema Post, want 50", n)
	}
	if n := lower.count(`SELECT count(*) FROM {s}.parked`); n != 0 {
		t.Errorf("%d messages are parked in schema post", n)
	}
}
