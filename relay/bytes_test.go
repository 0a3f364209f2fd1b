package relay_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// Large messages fill the limit of bytes long before that of messages.
func TestBytesInHandAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		var away atomic.Bool
		away.Store(true)
		r, stop := start(t, relay.Config{Store: store, Limits: relay.Limits{InFlightBytes: 1 << 20}, Routes: []relay.Route{
			orders(&membroker.Publisher{Broker: broker, Queue: "orders", Before: func(context.Context, outbox.Message) error {
				if away.Load() {
					return outbox.Unavailable(errAway)
				}
				return nil
			}})}})
		const n, size = 400, 64 << 10
		payload := make([]byte, size)
		for i := range n {
			enqueue(t, store, outbox.Message{Topic: "orders", Key: strconv.Itoa(i % 20), Payload: payload})
		}
		time.Sleep(time.Minute)
		// Beyond it may be the first page for each of the four shards, asked for
		// before it was known how large messages are.
		if s := r.Stats().Routes[0]; s.InFlightBytes < 1<<19 || s.InFlightBytes > 1<<20+4*4*size {
			t.Errorf("%d bytes in hand, at most %d are allowed", s.InFlightBytes, 1<<20)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		if got := len(broker.Messages("orders")); got != n {
			t.Errorf("%d messages arrived, want %d", got, n)
		}
		// A message that is larger than the limit goes through all the same.
		enqueue(t, store, outbox.Message{Topic: "orders", Payload: make([]byte, 2<<20)}, outbox.Message{Topic: "orders"})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := len(broker.Messages("orders")); got != n+2 {
			t.Errorf("%d messages arrived, want %d", got, n+2)
		}
	})
}

// When messages suddenly grow, one page for each shard may come in too much.
func TestBytesInHandWhenMessagesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		var away atomic.Bool
		r, stop := start(t, relay.Config{Store: store, Limits: relay.Limits{InFlightBytes: 16 << 20}, Routes: []relay.Route{
			orders(&membroker.Publisher{Broker: broker, Queue: "orders", Before: func(context.Context, outbox.Message) error {
				if away.Load() {
					return outbox.Unavailable(errAway)
				}
				return nil
			}})}})
		const small, large, size = 20_000, 400, 256 << 10
		numbers(t, store, small, "a", "b", "c", "")
		time.Sleep(time.Minute)
		away.Store(true)
		payload, page := make([]byte, size), []outbox.Message(nil)
		for range large {
			page = append(page, outbox.Message{Topic: "orders", Payload: payload})
		}
		enqueue(t, store, page...)
		time.Sleep(time.Minute)
		s := r.Stats().Routes[0]
		t.Logf("%d MiB in hand", s.InFlightBytes>>20)
		if s.InFlightBytes > 16<<20+4*(relay.PageBytes+size) {
			t.Errorf("%d bytes in hand, 16 MiB are allowed", s.InFlightBytes)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := len(broker.Messages("orders")); got != small+large {
			t.Errorf("%d messages arrived, want %d", got, small+large)
		}
	})
}
