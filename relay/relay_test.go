package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// quiet discards what a relay logs.
var quiet = slog.New(slog.DiscardHandler)

// enqueue commits messages in one transaction.
func enqueue(t testing.TB, store *memstore.Store, msgs ...outbox.Message) {
	t.Helper()
	tx := store.Begin()
	if err := outbox.NewWriter(store).Enqueue(context.Background(), tx, msgs...); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// message is number n of a key, on topic orders.
func message(key string, n int) outbox.Message {
	return outbox.Message{Topic: "orders", Key: key, Payload: fmt.Appendf(nil, "%d", n)}
}

// start runs a relay; the function that it returns stops it and returns what
// Run did.
func start(t testing.TB, config relay.Config) (*relay.Relay, func() error) {
	t.Helper()
	if config.Logger == nil {
		config.Logger = quiet
	}
	r, err := relay.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return r, func() error {
		cancel()
		return <-done
	}
}

func payloads(msgs []outbox.Message) []string {
	out := make([]string, len(msgs))
	for i, m := range msgs {
		out[i] = string(m.Payload)
	}
	return out
}

func TestDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{{
			Name: "orders", Topics: []string{"orders"}, Publisher: &membroker.Publisher{Broker: broker},
		}}})
		for i := range 1000 {
			enqueue(t, store, message(fmt.Sprint("k", i%7), i))
		}
		enqueue(t, store, outbox.Message{Topic: "other"})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := len(broker.Messages("orders")); got != 1000 {
			t.Errorf("%d messages arrived, want 1000", got)
		}
		if s := r.Stats().Routes[0]; s.Sent != 1000 || s.Received != 1000 || s.InFlight != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}
