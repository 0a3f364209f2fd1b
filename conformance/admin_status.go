package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

func (r *storeRig[Tx]) status() admin.Status {
	r.tb.Helper()
	s, err := r.admin().Status(r.ctx, admin.StatusOptions{})
	r.ok("status", err)
	return s
}

func (r *storeRig[Tx]) routeStatus(name string) admin.RouteStatus {
	r.tb.Helper()
	s := r.status()
	i := slices.IndexFunc(s.Routes, func(r admin.RouteStatus) bool { return r.Name == name })
	if i < 0 {
		r.tb.Fatalf("the status has no route %q: %+v", name, s)
	}
	return s.Routes[i]
}

func adminStatusTests[Tx any]() []storeTest[Tx] {
	near := func(r *storeRig[Tx], what string, at time.Time) {
		r.tb.Helper()
		if d := r.now().Sub(at).Abs(); d > time.Minute {
			r.tb.Errorf("%s is %v, which is %v away from now", what, at, d)
		}
	}
	return []storeTest[Tx]{
		{name: "an empty store", run: func(r *storeRig[Tx]) {
			s := r.status()
			if len(s.Routes)+len(s.Unrouted)+len(s.Relays) > 0 || s.Shards != 1 || s.Routes == nil || s.Unrouted == nil || s.Relays == nil {
				r.tb.Errorf("status %+v", s)
			}
			near(r, "its time", s.At)
			if !s.Stored.Oldest.IsZero() {
				r.tb.Errorf("the oldest message is of %v", s.Stored.Oldest)
			}
			r.enqueue(messages("k", "a", "b")...)
			near(r, "the oldest message", r.status().Stored.Oldest)
		}},
		{name: "lag, counts and the last error", run: func(r *storeRig[Tx]) {
			r.enqueue(message("k", "1"), message("k", "2"), message("k", "3"), message("", "4"), message("", "5"), message("", "6"), message("", "7"))
			lease := r.acquire()
			if s := r.routeStatus("route"); s.Pending != 7 || len(s.Parked) > 0 || s.Orphaned || s.Shards[0].Owner != "one" {
				r.tb.Errorf("before anything was read: %+v", s)
			}
			got := r.take(lease, 6)
			r.settle(lease, retrying(got[0], time.Hour), blocked(got[1])[0], blocked(got[2])[0])
			time.Sleep(2 * time.Millisecond) // some stores' clocks tick in milliseconds
			r.settle(lease, failed(got[3]), sent(got[4])[0])
			s := r.routeStatus("route")
			if s.Pending != 2 { // in flight, and not read
				r.tb.Errorf("pending: %+v", s)
			}
			near(r, "the oldest pending", s.OldestPending)
			for state, want := range map[outbox.State]int64{"retrying": 1, "blocked": 2, "failed": 1, "expired": 0} {
				if n, atLeast := s.Count(state); n != want || atLeast {
					r.tb.Errorf("%s: %d (at least: %v), want %d", state, n, atLeast, want)
				}
			}
			near(r, "the oldest retrying", s.Parked[0].Oldest)
			if s.LastError != "too large for the broker" {
				r.tb.Errorf("last error %q", s.LastError)
			}
			near(r, "the last error's time", s.LastErrorAt)
			few, err := r.admin().Status(r.ctx, admin.StatusOptions{CountUpTo: 1})
			r.ok("status", err)
			if n, atLeast := few.Routes[0].Count("blocked"); n != 1 || !atLeast {
				r.tb.Errorf("counting up to one: %d, at least %v", n, atLeast)
			}
			r.settle(lease, sent(got[5])...)
			r.settle(lease, sent(r.take(lease, 1)...)...)
			r.close(lease)
			if s := r.routeStatus("route"); s.Pending != 0 || !s.OldestPending.IsZero() || !s.Orphaned || s.Shards[0].Owner != "" {
				r.tb.Errorf("at the end: %+v", s)
			}
		}},
		{name: "what is replayed waits since then", run: func(r *storeRig[Tx]) {
			r.enqueue(message("", "old"))
			lease := r.acquire()
			r.settle(lease, sent(r.expect(lease, "old")...)...)
			r.close(lease)
			asked := r.now()
			r.acts(admin.Request{Action: admin.Replay, Filter: admin.Filter{Route: "route"}}, "old")
			if s := r.routeStatus("route"); s.Pending != 1 || s.OldestPending.Before(asked) {
				r.tb.Errorf("asked for at %v: %+v", asked, s)
			}
			r.enqueue(message("", "new"))
			lease = r.acquire()
			d := r.take(lease, 2)
			if d[0].Message.Type != "new" {
				d[0], d[1] = d[1], d[0]
			}
			r.settle(lease, pending(d[0], time.Hour), sent(d[1])[0])
			if s := r.routeStatus("route"); s.Pending != 1 || !s.OldestPending.Equal(d[0].Message.CreatedAt) {
				r.tb.Errorf("%v was put back untried: %+v", d[0].Message, s)
			}
		}},
		{name: "the oldest pending is one of the route's topics", run: func(r *storeRig[Tx]) {
			r.enqueue(outbox.Message{Topic: "a", Type: "1"})
			lease := r.acquire(topics("b"))
			if s := r.routeStatus("route"); !s.OldestPending.IsZero() {
				r.tb.Errorf("none of its topics waits: %+v", s)
			}
			r.enqueue(outbox.Message{Topic: "b", Type: "2"})
			if s := r.routeStatus("route"); s.OldestPending.IsZero() {
				r.tb.Errorf("one of its topics waits: %+v", s)
			}
			r.close(lease)
		}},
		{name: "a dead route of other topics is late all the same", run: func(r *storeRig[Tx]) {
			lease := r.acquire(topics("b"))
			r.close(lease)
			var many []outbox.Message
			for range 1500 {
				many = append(many, outbox.Message{Topic: "a"})
			}
			r.enqueue(many...)
			if s := r.routeStatus("route"); s.OldestPending.IsZero() || s.Pending != 1500 {
				r.tb.Errorf("more waits than was looked at: %+v", s)
			}
		}},
		{name: "topics that no route takes", run: func(r *storeRig[Tx]) {
			lease := r.acquire(topics("a.*", "b"))
			var all []outbox.Message
			for i, topic := range []string{"a.x", "a", "b", "B", "a.x.y", "a"} {
				all = append(all, outbox.Message{Topic: topic, Type: fmt.Sprint(i)})
			}
			r.enqueue(all...)
			s := r.status()
			var got []string
			for _, u := range s.Unrouted {
				got = append(got, fmt.Sprintf("%s %d", u.Topic, u.Messages))
				near(r, "the newest", u.Newest)
			}
			if want := []string{"B 1", "a 2", "a.x.y 1"}; !slices.Equal(got, want) {
				r.tb.Errorf("unrouted are %q, want %q", got, want)
			}
			r.close(lease)
		}},
		{name: "relays that take different topics", shards: 2, run: func(r *storeRig[Tx]) {
			r.acquire(shard(0), owner("one"), topics("a", "b"))
			r.acquire(shard(1), owner("two"), topics("b", "c"))
			r.enqueue(messages("", numbered(40)...)...)
			s := r.routeStatus("route")
			if !slices.Equal(s.Topics, []string{"a", "b", "c"}) || !slices.Equal(s.Shards[0].Topics, []string{"a", "b"}) || !slices.Equal(s.Shards[1].Topics, []string{"b", "c"}) {
				r.tb.Errorf("topics: %+v", s)
			}
			if s.Pending != 40 {
				r.tb.Errorf("pending: %+v", s)
			}
			r.enqueue(outbox.Message{Topic: "a"}, outbox.Message{Topic: "c"})
			if strays := r.status().Unrouted; slices.ContainsFunc(strays, func(u admin.Unrouted) bool { return u.Topic == "a" || u.Topic == "c" }) {
				r.tb.Errorf("a relay takes them: %+v", strays)
			}
		}},
		{name: "relays at work", run: func(r *storeRig[Tx]) {
			sharer, ok := r.h.Store.(relay.Sharer)
			if !ok {
				r.t.Skip("the store has no roster")
			}
			_, err := sharer.Look(r.ctx, relay.Member{Owner: "one", Routes: []string{"idle", "route"}}, longTTL)
			r.ok("look at the roster", err)
			s := r.status()
			if len(s.Relays) != 1 || s.Relays[0].Owner != "one" || !slices.Equal(s.Relays[0].Routes, []string{"idle", "route"}) || !s.Relays[0].Expires.After(s.At) {
				r.tb.Errorf("relays: %+v", s.Relays)
			}
			if idle := r.routeStatus("idle"); idle.Orphaned {
				r.tb.Errorf("a relay serves it: %+v", idle)
			}
		}},
	}
}
