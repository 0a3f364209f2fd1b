package orders

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/test/internal/programs"
)

// events relays what a shop enqueues into memory.
type events struct {
	t    testing.TB
	shop *shop
	mu   sync.Mutex
	got  []outbox.Message
}

// Publish implements outbox.Publisher.
func (e *events) Publish(_ context.Context, msgs []outbox.Message) []outbox.Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got = append(e.got, msgs...)
	return make([]outbox.Result, len(msgs))
}

// readEvents starts a relay that runs until the test ends.
func readEvents(t testing.TB, s *shop) *events {
	t.Helper()
	e := &events{t: t, shop: s}
	startRelay(t, s.relayStore(t), e)
	return e
}

func startRelay(t testing.TB, store relay.Store, publisher outbox.Publisher) {
	t.Helper()
	r, err := relay.New(relay.Config{
		Store:  store,
		Routes: []relay.Route{{Name: "orders", Topics: []string{event.Topic}, Publisher: publisher}},
		Logger: quiet(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	background(t, r.Run)
}

// background runs part until the test ends, and fails the test if it fails.
func background(t testing.TB, part func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- part(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// expect waits until the event of every stored order has arrived, and checks
// that there are n, each once, and that no other message was ever enqueued.
func (e *events) expect(n int) {
	e.t.Helper()
	orders, err := order.List(e.t.Context(), e.shop.db)
	if err != nil {
		e.t.Fatal(err)
	}
	if logged := e.shop.logged(); logged != n || len(orders) != n {
		e.t.Errorf("%d messages for %d orders, want %d", logged, len(orders), n)
	}
	eventually(e.t, "every order's event has arrived", func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, o := range orders {
			if !has(e.got, o.ID) {
				return fmt.Errorf("order %s has no event", o.ID)
			}
		}
		if len(e.got) != n {
			e.t.Errorf("%d events for %d orders", len(e.got), n)
		}
		return nil
	})
}

// logged is how many messages are in the outbox, published or not.
func (s *shop) logged() (n int) {
	s.t.Helper()
	for _, table := range s.logTables {
		var here int
		if err := s.db.QueryRowContext(s.t.Context(), "SELECT count(*) FROM "+table).Scan(&here); err != nil {
			s.t.Fatal(err)
		}
		n += here
	}
	return n
}

func has(msgs []outbox.Message, orderID string) bool {
	for _, m := range msgs {
		if m.Key == orderID {
			return true
		}
	}
	return false
}

// eventually waits until check is content.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	programs.Eventually(t, what, nil, check)
}
