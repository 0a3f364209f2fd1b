package journal

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
)

func TestAnOrderOnItsWay(t *testing.T) {
	var complete []Order
	j := New(2, func(o Order) { complete = append(complete, o) })
	j.Committed("a", "c1", 100)
	first, second := j.Watch(0, succeed), j.Watch(1, succeed)
	now := time.Now()
	j.Taken([]string{"a"}, now)
	j.Sent([]string{"a"}, now)
	if c := j.Counts(); c.Committed != 1 || c.Taken != 1 || c.Sent != 1 || c.Waiting != 0 || c.Open != 1 {
		t.Errorf("sent: %+v", c)
	}
	deliver(t, first, "a")
	if open, _, _ := j.Progress(); open != 1 {
		t.Errorf("%d open after one of two services", open)
	}
	deliver(t, second, "a")
	deliver(t, second, "a")
	c := j.Counts()
	if c.Open != 0 || c.Services[0].Done != 1 || c.Services[1] != (ServiceCounts{Deliveries: 2, Done: 1, Repeats: 1}) {
		t.Errorf("at the end: %+v", c)
	}
	if len(complete) != 1 || complete[0].ID != "a" {
		t.Errorf("complete: %v", complete)
	}
	o, ok := j.Find("a")
	if !ok || !o.Complete() || o.Customer != "c1" || o.Visits[1].Deliveries != 2 {
		t.Errorf("found %+v, %t", o, ok)
	}
	if passages, n := j.Passages(2); n != 6 || len(passages) != 4 || passages[0] != (Passage{Order: "a", Hop: Send}) {
		t.Errorf("%d passages, the last %v", n, passages)
	}
}

// Relay and services can be faster than the note of the commit.
func TestANoteThatIsLate(t *testing.T) {
	j := New(1, nil)
	j.Sent([]string{"a"}, time.Now())
	deliver(t, j.Watch(0, succeed), "a")
	j.Committed("a", "c1", 100)
	if c := j.Counts(); c.Waiting != 0 || c.Open != 0 || c.Services[0].Done != 1 {
		t.Errorf("%+v", c)
	}
	if delays := j.Delays(0); len(delays) != 1 || delays[0] != 0 {
		t.Errorf("delays %v", delays)
	}
}

// Messages of nobody's order, and orders of an earlier run, are counted as
// deliveries and are no open orders.
func TestStrangers(t *testing.T) {
	j := New(1, nil)
	refuse := j.Watch(0, func(context.Context, outbox.Message) error { return errors.New("no") })
	_, _, changed := j.Progress()
	if err := refuse(t.Context(), outbox.Message{}); err == nil {
		t.Error("the error is lost")
	}
	<-changed
	deliver(t, j.Watch(0, succeed), "earlier")
	if c := j.Counts(); c.Open != 0 || c.Services[0] != (ServiceCounts{Deliveries: 2, Done: 1, Refusals: 1}) {
		t.Errorf("%+v", c)
	}
	if newest := j.Newest(5); len(newest) != 0 {
		t.Errorf("newest %v", newest)
	}
}

func TestVeryManyPassages(t *testing.T) {
	j := New(1, nil)
	for range 5 * maxPassages {
		j.Taken([]string{"a"}, time.Now())
	}
	passages, n := j.Passages(0)
	if n != 5*maxPassages || len(passages) < maxPassages || len(passages) > 2*maxPassages {
		t.Errorf("%d of %d", len(passages), n)
	}
	if more, _ := j.Passages(n); len(more) != 0 {
		t.Errorf("%d passages after the last", len(more))
	}
}

func succeed(context.Context, outbox.Message) error { return nil }

func deliver(t *testing.T, handle func(context.Context, outbox.Message) error, key string) {
	t.Helper()
	if err := handle(t.Context(), outbox.Message{Key: key}); err != nil {
		t.Error(err)
	}
}
