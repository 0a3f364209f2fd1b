package poll_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
)

// Somebody deletes the cursors of a route that starts now, while messages wait:
// it goes on where it stood, and says so.
func TestARouteWhoseCursorIsDeletedGoesOn(t *testing.T) {
	o := newOffice(t, open(t), "deleted now", 2, "route")
	o.lease = 6 * time.Second
	o.enqueue(10, "before")
	o.ids = nil // it starts behind them
	sink := o.routes["route"]
	_, stop := o.open(func(r *relay.Route) { r.Start = relay.StartNow })
	o.await("it has begun", func() bool { return o.count(`SELECT count(*) FROM {s}.cursor`) == 2 })
	o.enqueue(300, "early")
	o.await("messages flow", func() bool { return o.lacking("route") == 0 })
	early := append([]uuid.UUID{}, o.ids...)
	recorded := func(n int) func() bool {
		return func() bool {
			return o.count(`SELECT count(*) FROM {s}.cursor WHERE started > 0 AND unsettled = '{}'`) == 2 && o.count(`SELECT sum(pos) FROM {s}.cursor`) == n
		}
	}
	o.await("they are recorded", recorded(310))
	sink.delay = time.Millisecond
	o.enqueue(1000, "late")
	o.await("messages flow", func() bool { return len(sink.times()) > 350 })
	o.exec(`DELETE FROM {s}.cursor`)
	o.enqueue(100, "latest")
	o.await("everything arrives", func() bool { return o.lacking("route") == 0 })
	o.await("its cursors are there again", recorded(1410))
	if err := stop(); err != nil {
		t.Errorf("%v; it says\n%s", err, o.log.String())
	}
	if text := o.log.String(); !strings.Contains(text, "somebody has deleted its row") {
		t.Errorf("it does not say so:\n%s", text)
	}
	times := sink.times()
	for _, id := range early {
		if times[id] != 1 {
			t.Errorf("%s was sent %d times, although that was recorded", id, times[id])
		}
	}
	if extra := len(times) - len(o.ids); extra > 0 {
		t.Errorf("%d messages of before its start came", extra)
	}
}

// goneRig is a route that starts now, with one message sent, one in hand and one
// not read.
type goneRig struct {
	*office
	store relay.Store
	claim relay.Claim
	lease relay.Lease
	got   []relay.Delivery
}

func newGoneRig(t *testing.T, schema string) *goneRig {
	t.Helper()
	r := &goneRig{office: newOffice(t, open(t), schema, 1), claim: relay.Claim{Route: "route", Owner: "one", TTL: time.Minute, Topics: []string{"**"}, Start: relay.StartNow}}
	r.store = r.another()
	r.enqueue(1, "before")
	r.lease = r.acquire(r.store)
	r.enqueue(1, "sent")
	r.enqueue(1, "in hand")
	r.receive(r.lease, "sent", "in hand")
	if err := r.lease.Settle(t.Context(), []relay.Outcome{{Delivery: r.got[0], State: outbox.StateSent}}); err != nil {
		t.Fatal(err)
	}
	r.enqueue(1, "not read")
	return r
}

func (r *goneRig) another() relay.Store {
	s, err := poll.New(poll.Config{Pool: r.pool, Schema: r.schema})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *goneRig) acquire(s relay.Store) relay.Lease {
	r.t.Helper()
	lease, err := s.Acquire(r.t.Context(), r.claim)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = lease.Close(context.WithoutCancel(r.t.Context())) })
	return lease
}

func (r *goneRig) receive(lease relay.Lease, want ...string) {
	r.t.Helper()
	r.got = nil
	for len(r.got) < len(want) {
		ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
		got, err := lease.Receive(ctx, 10)
		cancel()
		if err != nil {
			r.t.Fatalf("waiting for %q: %v", want, err)
		}
		r.got = append(r.got, got...)
	}
	for i, d := range r.got {
		if i >= len(want) || d.Message.Topic != want[i] {
			r.t.Fatalf("message %d is %q, want %q", i, d.Message.Topic, want)
		}
	}
}

func TestTheNextLeaseGoesOnWhereADeletedCursorStood(t *testing.T) {
	for name, ends := range map[string]func(t *testing.T, r *goneRig){
		"it settles": func(t *testing.T, r *goneRig) {
			err := r.lease.Settle(t.Context(), nil)
			if !errors.Is(err, relay.ErrFenced) || !strings.Contains(err.Error(), "deleted its row") || !strings.Contains(err.Error(), "route remove") {
				t.Errorf("settle: %v", err)
			}
		},
		"it was given up": func(*testing.T, *goneRig) {},
	} {
		t.Run(name, func(t *testing.T) {
			r := newGoneRig(t, "gone")
			r.exec(`DELETE FROM {s}.cursor`)
			// Another process does not know where it stood, and does not start now.
			claim := r.claim
			claim.Owner = "two"
			if _, err := r.another().Acquire(t.Context(), claim); err == nil || !strings.Contains(err.Error(), "DELETE FROM") || !strings.Contains(err.Error(), "start: beginning") {
				t.Errorf("another process: %v", err)
			}
			ends(t, r)
			if err := r.lease.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := r.another().Acquire(t.Context(), claim); err == nil {
				t.Error("another process starts now")
			}
			r.receive(r.acquire(r.store), "in hand", "not read")
			if started := r.count(`SELECT started FROM {s}.cursor`); started != 1 {
				t.Errorf("the route began after %d", started)
			}
		})
	}
}

func TestAnotherProcessMaySendEverythingAgain(t *testing.T) {
	r := newGoneRig(t, "gone everything")
	r.exec(`DELETE FROM {s}.cursor`)
	r.claim.Owner, r.claim.Start = "two", relay.StartBeginning
	r.receive(r.acquire(r.another()), "before", "sent", "in hand", "not read")
}

// Who removes a route wants it to begin anew.
func TestARemovedRouteBeginsAnew(t *testing.T) {
	r := newGoneRig(t, "removed")
	operators := admin.New(pgstore.NewAdmin(r.pool, r.schema))
	if _, err := operators.RemoveRoute(t.Context(), "route", true, "anna", ""); err != nil {
		t.Fatal(err)
	}
	if err := r.lease.Settle(t.Context(), nil); !errors.Is(err, relay.ErrFenced) || strings.Contains(err.Error(), "deleted") {
		t.Errorf("settle: %v", err)
	}
	if err := r.lease.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	lease := r.acquire(r.store)
	r.enqueue(1, "new")
	r.receive(lease, "new")
}
