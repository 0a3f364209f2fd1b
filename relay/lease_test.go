package relay_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// A clean stop forgets nothing that was published: nothing is sent twice.
func TestStopForgetsNothing(t *testing.T) {
	seed := uint64(testsize.Seed(t))
	for round := range 100 {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, uint64(round)))
			store, broker := memstore.New(memstore.Options{}), membroker.New()
			faults := script{errors: map[string][]error{}}
			for range 20 {
				faults.errors[fmt.Sprint(random.IntN(200))] = times(1+random.IntN(3), errTest)
			}
			delay := time.Duration(random.IntN(10)) * time.Millisecond
			route := orders(&membroker.Publisher{Broker: broker, Before: func(ctx context.Context, m outbox.Message) error {
				time.Sleep(delay)
				return faults.before(ctx, m)
			}})
			route.Retry.Initial = 10 * time.Millisecond
			route.Concurrency = 1 + random.IntN(8)
			config := relay.Config{Store: store, Routes: []relay.Route{route}}
			const n = 200
			numbers(t, store, n, "a", "b", "c", "d", "e", "f", "", "")
			for range 6 {
				_, stop := start(t, config)
				time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			}
			_, stop := start(t, config)
			time.Sleep(time.Minute)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			wantInOrder(t, broker.Messages("orders"), n)
		})
	}
}

// The same with the real scheduler, under load.
func TestStopUnderLoad(t *testing.T) {
	store, broker := memstore.New(memstore.Options{}), membroker.New()
	route := orders(&membroker.Publisher{Broker: broker})
	config := relay.Config{Store: store, Routes: []relay.Route{route}}
	rounds := testsize.Pick(30, 100)
	const each = 500
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range rounds {
			var batch []outbox.Message
			for j := 1; j <= each; j++ {
				batch = append(batch, message(fmt.Sprint("k", j%50), i*each+j))
			}
			enqueue(t, store, batch...)
		}
	}()
	for range rounds {
		r, stop := start(t, config)
		for r.Stats().Routes == nil || r.Stats().Routes[0].Received == 0 && len(broker.Messages("orders")) < rounds*each {
			time.Sleep(100 * time.Microsecond)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	<-written
	_, stop := start(t, config)
	for deadline := time.Now().Add(time.Minute); len(broker.Messages("orders")) < rounds*each && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	wantInOrder(t, broker.Messages("orders"), rounds*each)
}

// A publisher that never comes back cannot hold up a stop, and the stop says
// that its messages may be published again.
func TestStopWithAHangingPublisher(t *testing.T) {
	for name, obeys := range map[string]bool{"until its context ends": true, "for ever": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(memstore.Options{Shards: 1})
				never := make(chan struct{})
				entered := 0
				route := orders(publisherFunc(func(ctx context.Context, msgs []outbox.Message) []outbox.Result {
					entered += len(msgs)
					if obeys {
						<-ctx.Done()
					} else {
						<-never
					}
					results := make([]outbox.Result, len(msgs))
					for i := range results {
						results[i].Err = outbox.Unavailable(errAway)
					}
					return results
				}))
				route.Concurrency = 1
				r, stop := start(t, relay.Config{Store: store, Drain: 3 * time.Second, Routes: []relay.Route{route}})
				numbers(t, store, 5, "a", "b", "c", "d", "e")
				synctest.Wait()
				began := time.Now()
				var unsettled *relay.UnsettledError
				if err := stop(); !errors.As(err, &unsettled) || unsettled.Messages != entered {
					t.Errorf("stopped with %v, want %d messages unsettled", err, entered)
				} else if !strings.Contains(err.Error(), fmt.Sprint(entered)) {
					t.Errorf("the error does not say how many: %v", err)
				}
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("the stop took %v", took)
				}
				if got := r.Stats().Routes[0].DuplicatesPossible; got != uint64(entered) {
					t.Errorf("%d duplicates possible, want %d", got, entered)
				}
				close(never)
			})
		})
	}
}

// What is published when the stop comes is let finish, and recorded.
func TestStopLetsPublishesFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		config := relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker, After: func(context.Context, outbox.Message) error {
			time.Sleep(4 * time.Second)
			return nil
		}})}}
		numbers(t, store, 6, "a", "b", "c")
		_, stop := start(t, config)
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := len(broker.Messages("orders")); got == 0 || got == 6 {
			t.Fatalf("%d messages at the stop: it should come in the middle", got)
		}
		_, stop = start(t, config)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		wantInOrder(t, broker.Messages("orders"), 6)
	})
}

// The lease is given up by a stop: another relay goes on at once.
func TestStopGivesTheLeasesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		config := relay.Config{Store: store, Owner: "a", Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker})}}
		_, stop := start(t, config)
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		config.Owner = "b"
		_, stop = start(t, config)
		numbers(t, store, 100, "a", "b")
		time.Sleep(100 * time.Millisecond)
		wantInOrder(t, broker.Messages("orders"), 100)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// Two relays share the shards without a double; when one dies the other one
// takes over once the lease has run out.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, broker := memstore.New(memstore.Options{}), membroker.New()
		first := &faultyStore{Store: inner}
		dead := &atomic.Bool{}
		a, stopA := start(t, relay.Config{Store: first, Owner: "a", Routes: []relay.Route{orders(mortal{&membroker.Publisher{Broker: broker}, dead})}})
		time.Sleep(time.Second)
		b, stopB := start(t, relay.Config{Store: inner, Owner: "b", Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker})}})
		for i := 1; i <= 600; i++ {
			enqueue(t, inner, message([]string{"a", "b", "c"}[i%3], i))
			time.Sleep(100 * time.Millisecond) // longer than several leases
		}
		time.Sleep(time.Second)
		if a, b := a.Stats().Routes[0], b.Stats().Routes[0]; a.ShardsHeld != 4 || b.ShardsHeld != 0 || b.LeasesLost+a.LeasesLost != 0 {
			t.Errorf("a %+v\nb %+v", a, b)
		}
		dead.Store(true)
		first.set(errAway)
		for i := 601; i <= 700; i++ {
			enqueue(t, inner, message([]string{"a", "b", "c"}[i%3], i))
		}
		time.Sleep(20 * time.Second) // lease and 5 s
		wantInOrder(t, broker.Messages("orders"), 700)
		_ = stopA()
		if err := stopB(); err != nil {
			t.Error(err)
		}
	})
}

// mortal is a publisher that reaches the broker no more once its process is dead.
type mortal struct {
	outbox.Publisher
	dead *atomic.Bool
}

func (m mortal) Publish(ctx context.Context, msgs []outbox.Message) []outbox.Result {
	if !m.dead.Load() {
		return m.Publisher.Publish(ctx, msgs)
	}
	results := make([]outbox.Result, len(msgs))
	for i := range results {
		results[i].Err = outbox.Unavailable(errAway)
	}
	return results
}

func (m mortal) Destination(msg *outbox.Message) string {
	return m.Publisher.(outbox.Resolver).Destination(msg)
}

// A relay that was stopped past its lease publishes nothing with it, its
// writes are refused and counted, and it goes on with a new lease.
func TestPausedPastTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
		store := &faultyStore{Store: inner}
		var paused atomic.Bool
		store.settle = func() {
			if paused.Load() {
				time.Sleep(40 * time.Second)
			}
		}
		publisher := &membroker.Publisher{Broker: broker}
		r, stop := start(t, relay.Config{Store: store, Owner: "a", Routes: []relay.Route{orders(publisher)}})
		numbers(t, inner, 10, "a", "b")
		time.Sleep(time.Second)

		paused.Store(true)
		enqueue(t, inner, message("a", 11)) // published, and then its settling hangs
		time.Sleep(20 * time.Second)        // past the lease
		enqueue(t, inner, message("a", 12))
		time.Sleep(time.Second)
		if got := len(broker.Messages("orders")); got != 11 {
			t.Errorf("%d messages arrived: the relay published past its lease", got)
		}
		lease, err := inner.Acquire(t.Context(), relay.Claim{Route: "orders", Owner: "b", TTL: 15 * time.Second, Topics: []string{"**"}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := lease.Receive(t.Context(), 10)
		if err != nil || len(got) != 2 {
			t.Fatalf("the next owner received %d messages, %v, want the two that are not settled", len(got), err)
		}
		paused.Store(false)
		time.Sleep(30 * time.Second)
		if s := r.Stats().Routes[0]; s.Fenced != 1 || s.LeasesLost != 1 || s.DuplicatesPossible != 1 {
			t.Errorf("stats %+v", s)
		}
		if err := lease.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if got := len(broker.Messages("orders")); got != 13 { // 11 came again, as the other one had not sent it
			t.Errorf("%d messages arrived, want 13", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// The wall clock counts too: a machine that slept finds its lease over, though
// its monotonic clock stood still.
func TestNoPublishWhenEitherClockIsPastTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
		store := &clockStore{Store: inner, deadline: func(d time.Time) time.Time { return d.Add(-time.Hour).Round(0) }}
		_, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker})}})
		numbers(t, inner, 3, "k")
		time.Sleep(time.Minute)
		if got := len(broker.Messages("orders")); got != 0 {
			t.Errorf("%d messages were published without a lease", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

type clockStore struct {
	relay.Store
	deadline func(time.Time) time.Time
}

func (s *clockStore) Acquire(ctx context.Context, claim relay.Claim) (relay.Lease, error) {
	lease, err := s.Store.Acquire(ctx, claim)
	return clockLease{lease, s}, err
}

type clockLease struct {
	relay.Lease
	store *clockStore
}

func (l clockLease) Deadline() time.Time { return l.store.deadline(l.Lease.Deadline()) }
