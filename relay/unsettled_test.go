package relay_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// What this relay published and could not record may be published again by the
// relay that took the shard: a stop says so.
func TestUnsettledMessagesOfAnotherRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
		store := &faultyStore{Store: inner}
		store.settle = func() { store.set(errAway) }
		r, stop := start(t, relay.Config{Store: store, Owner: "a", Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker})}})
		enqueue(t, inner, message("k", 1), message("l", 2))
		time.Sleep(50 * time.Millisecond)
		if got := len(broker.Messages("orders")); got != 2 {
			t.Fatalf("%d messages arrived", got)
		}
		if _, err := inner.Acquire(t.Context(), relay.Claim{Route: "orders", Owner: "b", TTL: time.Hour, Topics: []string{"**"}}); err != nil {
			t.Fatal(err)
		}
		store.set(nil)
		time.Sleep(time.Minute)
		var unsettled *relay.UnsettledError
		if err := stop(); !errors.As(err, &unsettled) || unsettled.Messages != 2 {
			t.Errorf("stopped with %v, want 2 messages unsettled", err)
		}
		if got := r.Stats().Routes[0].DuplicatesPossible; got != 2 {
			t.Errorf("%d duplicates possible, want 2", got)
		}
	})
}

// What may not be recorded is remembered for the time of a lease; then it
// counts as something that may come twice.
func TestForgottenAcknowledgementsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
		store := &faultyStore{Store: inner, lateLoss: true}
		fail := true
		store.settle = func() {
			if fail {
				store.set(errAway)
			} else {
				store.set(nil)
			}
			fail = false
		}
		r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker})}})
		enqueue(t, inner, message("k", 1))
		time.Sleep(50 * time.Millisecond)
		store.set(nil)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := r.Stats().Routes[0].DuplicatesPossible; got != 1 {
			t.Errorf("%d duplicates possible, want 1", got)
		}
	})
}

// A publisher that ran out of time before it sent anything leaves nothing
// behind that may come twice.
func TestUnsentMessagesCannotComeTwice(t *testing.T) {
	for name, waits := range map[string]time.Duration{"while it hangs": time.Second, "after its time was up": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(memstore.Options{Shards: 1})
				r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(publisherFunc(func(ctx context.Context, msgs []outbox.Message) []outbox.Result {
					<-ctx.Done()
					results := make([]outbox.Result, len(msgs))
					for i := range results {
						results[i].Err = outbox.Unsent(outbox.TimedOut(ctx.Err()))
					}
					return results
				}))}})
				numbers(t, store, 5, "a", "b", "c", "d", "e")
				time.Sleep(waits)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if got := r.Stats().Routes[0].DuplicatesPossible; got != 0 {
					t.Errorf("%d duplicates possible", got)
				}
			})
		})
	}
}
