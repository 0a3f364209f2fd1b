package relay_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// While the store is away it is asked now and then, by one caller, however
// many routes and shards there are. Afterwards everything goes on, and what
// was published meanwhile is not published again.
func TestStoreAway(t *testing.T) {
	for _, recorded := range []bool{false, true} {
		t.Run(fmt.Sprint("recorded=", recorded), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner, broker := memstore.New(memstore.Options{}), membroker.New()
				store := &faultyStore{Store: inner, lateLoss: recorded}
				var routes []relay.Route
				for i := range 5 {
					routes = append(routes, relay.Route{Name: fmt.Sprint("r", i), Topics: []string{"**"}, Publisher: &membroker.Publisher{
						Broker: broker, Queue: fmt.Sprint("q", i), Before: func(context.Context, outbox.Message) error {
							time.Sleep(time.Millisecond)
							return nil
						}}})
				}
				r, stop := start(t, relay.Config{Store: store, Routes: routes})
				time.Sleep(time.Second)
				const n = 3000
				go numbers(t, inner, n, "a", "b", "c", "d", "e", "f", "g")
				time.Sleep(20 * time.Millisecond) // in the middle of it
				store.set(errAway)
				before := store.asked()
				time.Sleep(time.Minute)
				asked := store.asked() - before
				t.Logf("asked %d times in 60 s, for %d leases", asked, 4*len(routes))
				// 20 may fail at the same time at first, then there is one at a time.
				if asked < 5 || asked > 20+25 {
					t.Errorf("the store was asked %d times in 60 s", asked)
				}
				if got := r.Stats().StoreFailures; got == 0 {
					t.Error("no failure counted")
				}
				store.set(nil)
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				for i := range routes {
					wantInOrder(t, broker.Messages(fmt.Sprint("q", i)), n)
				}
			})
		})
	}
}

// A store that hands out leases but cannot settle must not make the relay
// publish in a loop.
func TestStoreThatCannotSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
		store := &faultyStore{Store: inner}
		store.settle = func() { store.set(errAway) }
		publisher := &membroker.Publisher{Broker: broker}
		_, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(publisher)}})
		numbers(t, inner, 1, "k")
		for range 60 {
			time.Sleep(time.Second)
			store.set(nil)
		}
		if n := store.asked(); n > 30 {
			t.Errorf("%d leases in a minute", n)
		}
		var unsettled *relay.UnsettledError
		if err := stop(); !errors.As(err, &unsettled) || unsettled.Messages != 1 {
			t.Errorf("stopped with %v, want one message unsettled", err)
		}
		if got := len(broker.Messages("orders")); got != 1 {
			t.Errorf("published %d times", got)
		}
	})
}

// What was acknowledged and may not be recorded is told by more than its id,
// which a later message may have too.
func TestSameIDAfterALostAnswerOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
		store := &faultyStore{Store: inner, lateLoss: true}
		store.settle = func() { store.set(errAway) }
		_, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker})}})
		for i := range 2 {
			m := message("k", i+1)
			m.ID = uuid.MustParse("0198c5a5-8a3e-7000-8000-000000000001")
			enqueue(t, inner, m)
			if i == 0 {
				time.Sleep(50 * time.Millisecond) // published, and its settling "failed"
			}
		}
		store.mu.Lock()
		store.away, store.lateLoss = nil, false
		store.mu.Unlock()
		time.Sleep(100 * time.Millisecond)
		_ = stop()
		wantInOrder(t, broker.Messages("orders"), 2)
	})
}

// A broker that is away costs no attempt and few calls; then everything
// arrives, in order, once.
func TestBrokerAway(t *testing.T) {
	for name, fault := range map[string]func(context.Context) error{
		"refuses": func(context.Context) error { return outbox.Unavailable(errAway) },
		"hangs": func(ctx context.Context) error {
			<-ctx.Done()
			return outbox.TimedOut(ctx.Err())
		},
		"hangs and does not say so": func(ctx context.Context) error {
			<-ctx.Done()
			return outbox.Unavailable(errAway)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, broker := memstore.New(memstore.Options{}), membroker.New()
				var away atomic.Bool
				var calls atomic.Int64
				good := &membroker.Publisher{Broker: broker}
				route := orders(publisherFunc(func(ctx context.Context, msgs []outbox.Message) []outbox.Result {
					calls.Add(1)
					if !away.Load() {
						return good.Publish(ctx, msgs)
					}
					err, results := fault(ctx), make([]outbox.Result, len(msgs))
					for i := range results {
						results[i].Err = err
					}
					return results
				}))
				r, stop := start(t, relay.Config{Store: store, Limits: relay.Limits{InFlightMessages: 500}, Routes: []relay.Route{route}})
				const n = 2000
				numbers(t, store, n/2, "a", "b", "c", "d", "e", "")
				time.Sleep(time.Second)
				before := calls.Load()
				away.Store(true)
				for i := n/2 + 1; i <= n; i++ {
					enqueue(t, store, message([]string{"a", "b", "c", "d", "e", ""}[i%6], i))
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(50 * time.Second)
				s := r.Stats().Routes[0]
				if !s.BreakerOpen || time.Since(s.BreakerSince) < 50*time.Second || s.Unavailable == 0 || s.LastError == "" {
					t.Errorf("nothing shows that the broker is away: %+v", s)
				}
				if s.InFlight > 500 {
					t.Errorf("%d messages in hand, at most 500 are allowed", s.InFlight)
				}
				if got := calls.Load() - before; got > 8+15 {
					t.Errorf("%d calls in a minute", got)
				} else {
					t.Logf("%d calls in a minute", got)
				}
				away.Store(false)
				time.Sleep(time.Minute)
				if s := r.Stats().Routes[0]; s.BreakerOpen || s.Retried+s.Failed+s.Blocked > 0 {
					t.Errorf("attempts were spent: %+v", s)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				wantInOrder(t, broker.Messages("orders"), n)
			})
		})
	}
}

// One message that the broker never answers for does not stop the others, and
// fails in the end. With it in the call, its company times out too.
func TestMessageThatTimesOut(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprint("concurrency=", concurrency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, broker := memstore.New(memstore.Options{}), membroker.New()
				good := &membroker.Publisher{Broker: broker}
				tries := 0
				route := orders(publisherFunc(func(ctx context.Context, msgs []outbox.Message) []outbox.Result {
					for _, m := range msgs {
						if string(m.Payload) == "500" {
							tries++
							<-ctx.Done()
						}
					}
					return good.Publish(ctx, msgs)
				}))
				route.Concurrency, route.PublishTimeout = concurrency, 2*time.Second
				route.Retry.MaxAttempts = 4
				r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{route}})
				const n = 1000
				numbers(t, store, n, "a", "b", "c", "d", "e", "f", "g")
				for i := n + 1; i <= n+600; i++ { // the others go on
					enqueue(t, store, message("z", i))
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(time.Second)
				if s := r.Stats().Routes[0]; s.Failed != 1 || s.Sent != n+600-1 || s.Retried != 3 || s.BreakerOpen {
					t.Errorf("stats %+v", s)
				}
				t.Logf("tried %d times", tries)
				if tries > 4*2+2 {
					t.Errorf("tried %d times for 4 attempts", tries)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				parked := store.Parked("orders")
				if len(parked) != 1 || parked[0].Attempts != 4 {
					t.Errorf("parked %+v", parked)
				}
			})
		})
	}
}

// A lone message that times out says nothing about whose fault it is: no
// attempt is spent until another one gets through.
func TestTimeoutIsJudgedByAnotherMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker, Queue: "orders", Before: func(ctx context.Context, m outbox.Message) error {
			if m.Key == "bad" {
				<-ctx.Done()
				return outbox.TimedOut(ctx.Err())
			}
			return nil
		}})}})
		enqueue(t, store, message("bad", 1))
		time.Sleep(5 * time.Minute)
		if s := r.Stats().Routes[0]; s.Retried+s.Failed > 0 || !s.BreakerOpen {
			t.Errorf("alone: %+v", s)
		}
		for i := range 10 {
			enqueue(t, store, message("good", i))
			time.Sleep(10 * time.Second)
			if s := r.Stats().Routes[0]; s.Sent != uint64(i+1) {
				t.Errorf("message %d behind one that times out did not arrive in 10 s: %+v", i, s)
			}
		}
		if s := r.Stats().Routes[0]; s.Retried < 3 {
			t.Errorf("with others: %+v", s)
		}
		_ = stop() // the bad one may have arrived
	})
}

func TestExpiresWhileTheBrokerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		var away atomic.Bool
		away.Store(true)
		r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker, Before: func(context.Context, outbox.Message) error {
			if away.Load() {
				return outbox.Refused(errAway)
			}
			return nil
		}})}})
		m := message("k", 1)
		m.Expires = time.Now().Add(10 * time.Second)
		enqueue(t, store, m, message("k", 2), message("k", 3))
		time.Sleep(time.Minute)
		if s := r.Stats().Routes[0]; !s.Alarm {
			t.Errorf("no alarm: %+v", s)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := payloads(broker.Messages("orders")); len(got) != 2 || got[0] != "2" {
			t.Errorf("arrived %q", got)
		}
		if s := r.Stats().Routes[0]; s.Expired != 1 || s.Alarm {
			t.Errorf("stats %+v", s)
		}
	})
}

// A message from a time when the database's clock was ahead does not make the
// relay expire what the database says is in time.
func TestNothingExpiresByAClockThatWasCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
		store := &aheadStore{Store: inner}
		r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker})}})
		store.ahead.Store(true)
		enqueue(t, inner, message("k", 1))
		time.Sleep(time.Second)
		store.ahead.Store(false)
		for i := range 10 {
			m := message("k", i+2)
			m.Expires = time.Now().Add(time.Minute)
			enqueue(t, inner, m)
		}
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if s := r.Stats().Routes[0]; s.Expired != 0 {
			t.Errorf("%d messages expired", s.Expired)
		}
		wantInOrder(t, broker.Messages("orders"), 11)
	})
}

// aheadStore hands messages out as if its clock had been ahead by an hour when
// they were created.
type aheadStore struct {
	relay.Store
	ahead atomic.Bool
}

func (s *aheadStore) Acquire(ctx context.Context, claim relay.Claim) (relay.Lease, error) {
	lease, err := s.Store.Acquire(ctx, claim)
	return &aheadLease{lease, s}, err
}

type aheadLease struct {
	relay.Lease
	store *aheadStore
}

func (l *aheadLease) Receive(ctx context.Context, max int) ([]relay.Delivery, error) {
	deliveries, err := l.Lease.Receive(ctx, max)
	for i := range deliveries {
		if l.store.ahead.Load() {
			m := &deliveries[i].Message
			m.CreatedAt = m.CreatedAt.Add(time.Hour)
		}
	}
	return deliveries, err
}
