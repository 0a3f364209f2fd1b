package relay_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// A message that ends the process at every try fails after max_attempts deaths;
// all others get through, in order of their keys, and spend no attempt.
func TestPoisonThatEndsTheProcess(t *testing.T) {
	for _, what := range []relay.OnFailure{relay.Release, relay.Hold} {
		t.Run(string(what), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { poison(t, what, 4) })
		})
	}
}

func poison(t *testing.T, what relay.OnFailure, attempts int) {
	inner, broker := memstore.New(memstore.Options{Shards: 2}), membroker.New()
	numbers(t, inner, 300, "a", "b", "c", "")
	for i := 901; i < 931; i++ { // in front of it
		enqueue(t, inner, message("poisoned", i))
	}
	enqueue(t, inner, message("poisoned", 1000), message("poisoned", 1001), message("other", 1002), message("", 1003))

	tries := 0 // of the poison
	deaths := 0
	for born := 0; ; born++ {
		if born > 30 {
			t.Fatal("the process dies again and again")
		}
		died := liveOnce(t, inner, broker, what, attempts, born, func(m outbox.Message) bool {
			if string(m.Payload) == "1000" {
				tries++
				return true
			}
			return false
		})
		if !died {
			break
		}
		deaths++
		enqueue(t, inner, message("a", 2000+born)) // life goes on
	}
	arrived := make(map[string]bool)
	for _, m := range broker.Messages("orders") {
		arrived[string(m.Payload)] = true
	}
	want := 300 + 30 + 2 + deaths // and the one behind the poison
	if what == relay.Release {
		want++
	}
	if len(arrived) != want || arrived["1000"] {
		t.Errorf("%d messages arrived, want %d, and not the poison", len(arrived), want)
	}
	if arrived["1001"] != (what == relay.Release) {
		t.Errorf("the one behind the poison arrived: %v", arrived["1001"])
	}
	wantKeysInOrder(t, broker.Messages("orders"))
	for _, p := range inner.Parked("orders") {
		switch {
		case string(p.Message.Payload) == "1000":
			if p.State != outbox.StateFailed || p.Attempts != attempts || !strings.Contains(p.Error, "died while it published") {
				t.Errorf("the poison is %s after %d attempts: %s", p.State, p.Attempts, p.Error)
			}
		case what == relay.Hold && string(p.Message.Payload) == "1001" && p.State == outbox.StateBlocked:
		default:
			t.Errorf("parked: %s as %s after %d attempts", p.Message.Payload, p.State, p.Attempts)
		}
	}
	if tries != deaths || deaths < attempts || deaths > attempts+3 {
		t.Errorf("the process died %d times at %d tries, with %d attempts", deaths, tries, attempts)
	}
}

// wantKeysInOrder checks that first deliveries are in order within each key.
func wantKeysInOrder(t *testing.T, got []outbox.Message) {
	t.Helper()
	seen, last := make(map[string]bool), make(map[string]string)
	for _, m := range got {
		n := string(m.Payload)
		if seen[n] || m.Key == "" {
			continue
		}
		seen[n] = true
		if before := last[m.Key]; len(before) > len(n) || len(before) == len(n) && before > n {
			t.Errorf("key %q: %s arrived after %s", m.Key, n, before)
		}
		last[m.Key] = n
	}
}

// liveOnce runs a relay for a while, or until it publishes a message that kills
// it: then neither the store nor the broker hears of it any more.
func liveOnce(t *testing.T, inner *memstore.Store, broker *membroker.Broker, what relay.OnFailure, attempts, born int, kills func(outbox.Message) bool) (died bool) {
	store := &faultyStore{Store: inner}
	var dead atomic.Bool
	var mu sync.Mutex
	end := make(chan struct{})
	publisher := &membroker.Publisher{Broker: broker, Before: func(_ context.Context, m outbox.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if !dead.Load() && kills(m) {
			store.die()
			dead.Store(true)
			close(end)
		}
		if dead.Load() {
			return outbox.Unavailable(errAway)
		}
		return nil
	}}
	route := orders(mortal{publisher, &dead})
	route.OnFailure, route.Retry.MaxAttempts = what, attempts
	_, stop := start(t, relay.Config{Store: store, Owner: fmt.Sprint("relay-", born), Lease: time.Second, Routes: []relay.Route{route}})
	select {
	case <-end:
	case <-time.After(time.Minute):
	}
	err := stop()
	if !dead.Load() && err != nil {
		t.Error(err)
	}
	time.Sleep(2 * time.Second) // its leases run out
	return dead.Load()
}
