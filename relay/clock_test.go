package relay

import (
	"testing"
	"time"
	"unsafe"
)

// The wall clock and the monotonic clock both bound a publish: after a machine
// slept, or its clock was set, they disagree.
func TestPublishTimeByBothClocks(t *testing.T) {
	r := &route{Route: Route{PublishTimeout: 5 * time.Second}, relay: &Relay{config: Config{Lease: 10 * time.Second}}}
	now := time.Now()
	if got := r.publishTime(now.Add(10*time.Second), now); got != 5*time.Second {
		t.Errorf("at the start of a lease: %v", got)
	}
	if got := r.publishTime(now.Add(3*time.Second), now); got != 2*time.Second {
		t.Errorf("near its end: %v", got)
	}
	if got := r.publishTime(now.Add(-time.Hour).Round(0), now); got > 0 {
		t.Errorf("past it by the wall clock: %v", got)
	}
	// A deadline that is in the future by the monotonic clock alone, as after
	// a sleep, in which that clock stands still.
	slept := now.Add(-time.Hour)
	(*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&slept)).ext += int64(2 * time.Hour)
	if d := slept.Sub(now); d < 30*time.Minute {
		t.Fatalf("time.Time is not what this test takes it for: %v", d)
	}
	if got := r.publishTime(slept, now); got > 0 {
		t.Errorf("past it by the wall clock, not by the monotonic one: %v", got)
	}
}

func TestStoreClock(t *testing.T) {
	ours := time.Now()
	store := ours.Add(-time.Hour) // its clock is an hour behind
	var c storeClock
	if c.expired(store.Add(-time.Hour), ours) {
		t.Error("expired before the store's clock was ever seen")
	}
	c.see(store, ours)
	c.see(store.Add(-time.Minute), ours) // an older message says nothing new
	deadline := store.Add(10 * time.Second)
	if c.expired(deadline, ours.Add(9*time.Second)) {
		t.Error("expired too early")
	}
	if !c.expired(deadline, ours.Add(11*time.Second)) {
		t.Error("not expired")
	}
	if c.expired(time.Time{}, ours.Add(time.Hour)) {
		t.Error("a message without a deadline expired")
	}
}

// The store's clock was ahead and was corrected: the bound follows.
func TestStoreClockGoesBack(t *testing.T) {
	ours := time.Now()
	var c storeClock
	c.see(ours.Add(time.Hour), ours)
	expires := ours.Add(time.Minute)
	c.alive(ours.Add(-time.Second), time.Time{}, ours)
	if !c.expired(expires, ours) {
		t.Error("a message without a deadline says nothing about the clock")
	}
	c.alive(ours.Add(-time.Second), expires, ours)
	if c.expired(expires, ours.Add(time.Minute)) {
		t.Error("expired by a clock that was corrected")
	}
	if !c.expired(expires, ours.Add(2*time.Minute)) {
		t.Error("never expires")
	}
	c.alive(ours.Add(-time.Hour), ours.Add(3*time.Minute), ours.Add(2*time.Minute))
	if !c.expired(expires, ours.Add(2*time.Minute)) {
		t.Error("went back for a message that contradicts nothing")
	}
}
