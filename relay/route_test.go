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

// A publisher that breaks its contract costs an attempt and nothing else.
func TestPublisherThatMisbehaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		good := &membroker.Publisher{Broker: broker}
		calls := 0
		route := orders(publisherFunc(func(ctx context.Context, msgs []outbox.Message) []outbox.Result {
			switch calls++; calls {
			case 1:
				panic("no luck")
			case 2:
				return nil
			case 3:
				return make([]outbox.Result, len(msgs)+1)
			}
			return good.Publish(ctx, msgs)
		}))
		route.Concurrency = 1
		_, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{route}})
		numbers(t, store, 20, "a", "b")
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		wantInOrder(t, broker.Messages("orders"), 20)
	})
}

type publisherFunc func(ctx context.Context, msgs []outbox.Message) []outbox.Result

func (f publisherFunc) Publish(ctx context.Context, msgs []outbox.Message) []outbox.Result {
	return f(ctx, msgs)
}

func TestScheduledAndExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		faults := script{errors: map[string][]error{"2": times(3, errTest)}}
		r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker, Before: faults.before})}})
		later, late := message("k", 4), message("k", 9)
		later.NotBefore = time.Now().Add(2 * time.Second) // due while 2 is still being retried
		late.Expires = time.Now().Add(time.Second)
		enqueue(t, store, message("k", 1), later, message("k", 2), late, message("k", 3))
		time.Sleep(time.Second)
		if got := payloads(broker.Messages("orders")); !slices.Equal(got, []string{"1"}) {
			t.Errorf("arrived %q at first", got)
		}
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := payloads(broker.Messages("orders")); !slices.Equal(got, []string{"1", "2", "3", "4"}) {
			t.Errorf("arrived %q", got)
		}
		if s := r.Stats().Routes[0]; s.Scheduled != 1 || s.Expired != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestOrderNoneWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		faults := script{errors: map[string][]error{"1": times(4, errTest)}}
		route := orders(&membroker.Publisher{Broker: broker, Before: faults.before})
		route.Order = relay.OrderNone
		_, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{route}})
		numbers(t, store, 3, "k")
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := payloads(broker.Messages("orders")); !slices.Equal(got, []string{"2", "3", "1"}) {
			t.Errorf("arrived %q", got)
		}
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		route := orders(&membroker.Publisher{Broker: broker})
		route.Rate = 50
		_, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{route}})
		numbers(t, store, 1000, "a", "b", "c", "d", "e", "f")
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := len(broker.Messages("orders")); got < 490 || got > 510 {
			t.Errorf("%d messages in 10 s at 50 per second", got)
		}
	})
}
