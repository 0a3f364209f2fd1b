package relay_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// Relays that join get their part soon, from those that have more than theirs,
// and nothing else moves. One that stops well leaves its part to the others at
// once, though its leases would last much longer. Nothing is sent twice.
func TestSharesFollowWhoJoinsAndLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 5)
		f.join("d")
		f.sail(soon)
		f.has("orders", map[string]int{"d": 5})
		moved := 0
		step := func(moves int, want map[string]int) {
			t.Helper()
			f.sail(soon)
			f.has("orders", want)
			if moved += moves; f.handedOver() != moved {
				t.Errorf("with %v %d shards have moved, want %d", want, f.handedOver(), moved)
			}
		}
		f.join("c")
		step(2, map[string]int{"d": 3, "c": 2})
		f.join("b")
		step(1, map[string]int{"d": 2, "c": 2, "b": 1})
		f.join("a")
		step(1, map[string]int{"d": 2, "c": 1, "b": 1, "a": 1})
		f.join("e")
		step(1, map[string]int{"d": 1, "c": 1, "b": 1, "a": 1, "e": 1})
		f.join("standby")
		step(0, map[string]int{"d": 1, "c": 1, "b": 1, "a": 1, "e": 1, "standby": 0})
		f.leave("a")
		step(0, map[string]int{"d": 1, "c": 1, "b": 1, "e": 1, "standby": 1})
		f.leave("b")
		step(0, map[string]int{"d": 2, "c": 1, "e": 1, "standby": 1})
		if members := f.crew["d"].Stats().Members; members != 4 {
			t.Errorf("%d relays are seen, want 4", members)
		}
		f.arrived("orders")
		f.end()
	})
}

// A relay that dies is replaced when its lease is over, not much later.
func TestSharesOfADeadRelayAreTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		for _, name := range []string{"a", "b", "c", "d"} {
			f.join(name)
		}
		f.sail(3 * soon)
		f.has("orders", map[string]int{"a": 1, "b": 1, "c": 1, "d": 1})
		f.die("b")
		f.die("d")
		f.sail(relay.DefaultLease + time.Second)
		f.has("orders", map[string]int{"a": 2, "c": 2})
		time.Sleep(time.Second)
		seen := make(map[string]bool)
		for _, m := range f.broker.Messages("orders") {
			seen[string(m.Payload)] = true
		}
		if len(seen) != f.sent {
			t.Errorf("%d of %d messages arrived", len(seen), f.sent)
		}
		f.join("b2")
		f.sail(soon)
		f.has("orders", map[string]int{"a": 2, "c": 1, "b2": 1})
		f.end()
	})
}

// On a store without a roster a dead neighbour is replaced within lease and 5 s too.
func TestTakeoverWithoutARoster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultyStore{Store: memstore.New(memstore.Options{Shards: 1})}
		if _, err := store.Acquire(t.Context(), relay.Claim{Route: "orders", Owner: "dead", TTL: time.Minute, Topics: []string{"**"}}); err != nil {
			t.Fatal(err)
		}
		r, stop := start(t, relay.Config{Store: store, Lease: time.Minute, Routes: []relay.Route{orders(&membroker.Publisher{Broker: membroker.New()})}})
		time.Sleep(time.Minute + 3*time.Second)
		if s := r.Stats(); s.Routes[0].ShardsHeld != 1 || s.Members != 0 {
			t.Errorf("%+v", s)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A relay that stood still past its lease comes back as the youngest, and gets
// what is its part then.
func TestSharesOfARelayThatStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.join("a")
		f.join("b")
		f.sail(soon)
		f.has("orders", map[string]int{"a": 1, "b": 1})
		stood := f.crew["a"]
		f.die("a")
		f.sail(relay.DefaultLease + time.Second)
		f.has("orders", map[string]int{"b": 2})
		f.join("c")
		f.sail(soon)
		stood.dead.Store(false)
		stood.store.set(nil)
		f.crew["a"] = stood
		f.sail(relay.DefaultLease)
		f.has("orders", map[string]int{"a": 0, "b": 1, "c": 1})
		f.leave("b")
		f.sail(soon)
		f.has("orders", map[string]int{"a": 1, "c": 1})
		delete(f.crew, "a") // the test's clean-up stops it
		f.end()
	})
}

// Of several routes what is left over does not all go to the same relay, and a
// relay that does not serve a route has no part in it.
func TestSharesOfSeveralRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.join("a", "one", "two")
		f.sail(soon)
		f.join("b", "two", "one")
		f.sail(soon)
		f.has("one", map[string]int{"a": 2, "b": 1})
		f.has("two", map[string]int{"a": 1, "b": 2})
		f.join("new", "two", "three")
		f.sail(soon)
		f.has("one", map[string]int{"a": 2, "b": 1})
		f.has("two", map[string]int{"a": 1, "b": 1, "new": 1})
		f.has("three", map[string]int{"new": 3})
		f.leave("a")
		f.leave("b")
		f.sail(soon)
		f.has("two", map[string]int{"new": 3})
		f.arrived("two")
		f.end()
	})
}

// A paused route is published by nobody, and its shards are nobody's. Resumed,
// it goes on soon, and nothing was sent twice.
func TestPausedRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.join("a", "one", "two")
		f.join("b", "one", "two")
		f.sail(soon)
		f.store.SetPaused("one", true)
		f.sail(soon)
		before := len(f.broker.Messages("one"))
		f.sail(time.Minute)
		f.has("one", map[string]int{"a": 0, "b": 0})
		f.has("two", map[string]int{"a": 2, "b": 2})
		for _, r := range f.crew["a"].Stats().Routes {
			if r.Paused != (r.Name == "one") {
				t.Errorf("route %s: paused %v", r.Name, r.Paused)
			}
		}
		if got := len(f.broker.Messages("one")); got != before {
			t.Errorf("%d messages were sent while the route was paused", got-before)
		}
		f.join("c", "one", "two") // also one that starts meanwhile
		f.sail(soon)
		if got := len(f.broker.Messages("one")); got != before {
			t.Errorf("%d messages were sent while the route was paused", got-before)
		}
		f.store.SetPaused("one", false)
		f.sail(soon)
		for _, route := range []string{"one", "two"} {
			f.has(route, map[string]int{"c": 1})
		}
		f.arrived("one", "two")
		f.end()
	})
}

// A relay that cannot see the roster takes what it can get, so that nothing is
// left alone; once it sees it again it gives up what is not its part.
func TestWithoutSightOfTheRoster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		a := &sailor{store: &sharing{faultyStore: &faultyStore{Store: f.store}}}
		a.store.blind.Store(true)
		f.joinWith("a", a, a.store)
		f.sail(soon)
		f.join("b")
		f.sail(soon)
		if held := f.crew["a"].Stats().Routes[0].ShardsHeld; held != 4 {
			t.Errorf("the one that sees nobody holds %d shards", held)
		}
		if s := f.crew["a"].Stats(); s.Members != 0 {
			t.Errorf("it sees %d relays", s.Members)
		}
		f.crew["a"].store.blind.Store(false)
		f.sail(12 * time.Second) // it is asked less and less often
		f.has("orders", map[string]int{"a": 2, "b": 2})
		// A short while without sight changes nothing.
		f.crew["a"].store.blind.Store(true)
		f.sail(relay.DefaultLease / 2)
		f.has("orders", map[string]int{"a": 2, "b": 2})
		// A long one must not leave a dead neighbour's shards alone.
		f.die("b")
		f.sail(2*relay.DefaultLease + soon)
		f.has("orders", map[string]int{"a": 4})
		f.end()
	})
}

// Rows of the roster that somebody deletes cost nothing.
func TestPrunedRoster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.join("a")
		f.join("b")
		f.sail(2 * soon)
		for range 20 {
			for _, name := range []string{"a", "b"} {
				if err := f.store.Leave(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
			f.sail(300 * time.Millisecond)
		}
		f.sail(soon)
		f.has("orders", map[string]int{"a": 2, "b": 2})
		f.arrived("orders")
		f.end()
	})
}

// lacking is a store that does not hand one shard out.
type lacking struct {
	*sharing
	shard int
}

func (s lacking) Acquire(ctx context.Context, claim relay.Claim) (relay.Lease, error) {
	if claim.Shard == s.shard {
		return nil, errTest
	}
	return s.sharing.Acquire(ctx, claim)
}

// A shard that is not to be had keeps nobody from its part of the others, and
// is named by the relay whose part it is.
func TestAShardThatIsNotToBeHad(t *testing.T) {
	for shard := range 4 {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 4)
			for _, name := range []string{"a", "b"} {
				s := &sailor{store: &sharing{faultyStore: &faultyStore{Store: f.store}}}
				f.joinWith(name, s, lacking{s.store, shard})
				f.sail(20 * time.Second)
			}
			a, b := f.crew["a"].Stats().Routes[0], f.crew["b"].Stats().Routes[0]
			if a.ShardsHeld+b.ShardsHeld != 3 || min(a.ShardsHeld, b.ShardsHeld) != 1 {
				t.Errorf("held are %d and %d shards, want 2 and 1", a.ShardsHeld, b.ShardsHeld)
			}
			failing := append(a.ShardsFailing, b.ShardsFailing...)
			if len(failing) != 1 || failing[0].Shard != shard || (len(a.ShardsFailing) > 0) != (a.ShardsHeld == 1) {
				t.Errorf("failing are %+v and %+v", a.ShardsFailing, b.ShardsFailing)
			}
			f.end()
		})
	}
}

// What is being published when a shard is given up is let finish, and recorded.
func TestHandingOverLetsPublishesFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{Shards: 2}), membroker.New()
		var arrived []string
		config := relay.Config{Store: store, Routes: []relay.Route{orders(publisherFunc(func(_ context.Context, msgs []outbox.Message) []outbox.Result {
			time.Sleep(5 * time.Second)
			return (&membroker.Publisher{Broker: broker}).Publish(context.Background(), msgs)
		}))}}
		config.Owner = "a"
		_, stopA := start(t, config)
		numbers(t, store, 40, "a", "b", "c", "d", "e", "f", "g", "h")
		time.Sleep(time.Second)
		config.Owner = "b"
		b, stopB := start(t, config)
		time.Sleep(3 * time.Second)
		if held := b.Stats().Routes[0].ShardsHeld; held != 0 {
			t.Errorf("%d shards were taken over while the other one was publishing", held)
		}
		time.Sleep(5 * time.Second)
		if held := b.Stats().Routes[0].ShardsHeld; held != 1 {
			t.Errorf("%d shards were taken over", held)
		}
		time.Sleep(time.Minute)
		for _, stop := range []func() error{stopA, stopB} {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		arrived = payloads(broker.Messages("orders"))
		slices.Sort(arrived)
		if len(slices.Compact(arrived)) != len(arrived) {
			t.Errorf("arrived %q", arrived)
		}
		wantInOrder(t, broker.Messages("orders"), 40)
	})
}
