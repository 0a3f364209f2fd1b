package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// What a relay knows of destinations is old once it has nothing to send there: a
// route that is paused, or of which other relays have every shard, raises no
// alarm.
func TestNoAlarmOfARouteThatIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
		var away atomic.Bool
		away.Store(true)
		publisher := &membroker.Publisher{Broker: broker, Before: func(context.Context, outbox.Message) error {
			if away.Load() {
				return outbox.Refused(errAway)
			}
			return nil
		}}
		r, stop := start(t, relay.Config{Store: store, Owner: "b", Routes: []relay.Route{orders(publisher)}})
		alarmed := func(want bool, when string) {
			t.Helper()
			s := r.Stats().Routes[0]
			if s.Alarm != want || s.BreakerOpen != want || s.BreakerSince.IsZero() == want || s.DestinationsAway > 0 != want || len(s.Destinations) > 0 != want {
				t.Errorf("%s: %+v", when, s)
			}
			if s.DestinationsKnown != 1 {
				t.Errorf("%s: %d destinations", when, s.DestinationsKnown)
			}
		}
		numbers(t, store, 3, "a")
		time.Sleep(time.Minute)
		alarmed(true, "its destination refuses everybody")
		store.SetPaused("orders", true)
		time.Sleep(time.Minute)
		alarmed(false, "paused")
		store.SetPaused("orders", false)
		time.Sleep(time.Minute)
		alarmed(true, "resumed")

		// Of one shard and two relays the elder has it.
		if _, err := store.Look(t.Context(), relay.Member{Owner: "a", Routes: []string{"orders"}}, time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := store.Leave(t.Context(), "b"); err != nil { // it comes back as the younger one
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if held := r.Stats().Routes[0].ShardsHeld; held != 0 {
			t.Fatalf("it holds %d shards", held)
		}
		alarmed(false, "without a shard")
		if err := store.Leave(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		alarmed(false, "the destination is back")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		wantInOrder(t, broker.Messages("orders"), 3)
	})
}
