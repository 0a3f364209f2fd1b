package relay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// slow takes its time for each batch, and puts what is more than most off.
type slow struct {
	outbox.Publisher
	takes time.Duration
	most  int // 0: any number
}

func (p slow) Publish(ctx context.Context, msgs []outbox.Message) []outbox.Result {
	time.Sleep(p.takes)
	n := len(msgs)
	if p.most > 0 {
		n = min(n, p.most)
	}
	results := p.Publisher.Publish(ctx, msgs[:n])
	for range msgs[n:] {
		results = append(results, outbox.Result{Err: outbox.Retryable(errTest)})
	}
	return results
}

func (p slow) Destination(m *outbox.Message) string {
	return p.Publisher.(outbox.Resolver).Destination(m)
}

// Work that takes several times as long as the lease does not keep the lease
// from being renewed: nobody takes over, who tries all the time, and nothing is
// sent twice. Nor is the outcome of a long batch waited for before it is.
func TestWorkLongerThanTheLease(t *testing.T) {
	const lease = 15 * time.Second
	for name, work := range map[string]struct {
		messages int
		edit     func(*relay.Route)
	}{
		"slow by rate": {200, func(r *relay.Route) { r.Rate = 3 }},
		"many slow batches": {40, func(r *relay.Route) {
			r.Concurrency, r.Retry.MaxAttempts = 1, 1000
			r.Publisher = slow{Publisher: r.Publisher, most: 2, takes: lease / 3}
		}},
		"one batch at a time that takes nearly the whole lease": {12, func(r *relay.Route) {
			r.Concurrency, r.PublishTimeout = 1, lease-time.Second
			r.Publisher = slow{Publisher: r.Publisher, takes: lease - 2*time.Second}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
				route := orders(&membroker.Publisher{Broker: broker})
				work.edit(&route)
				numbers(t, store, work.messages, "a", "b", "c", "")
				began := time.Now()
				r, stop := start(t, relay.Config{Store: store, Owner: "at work", Lease: lease, Routes: []relay.Route{route}})
				time.Sleep(time.Second)
				for len(broker.Messages("orders")) < work.messages && time.Since(began) < time.Hour {
					_, err := store.Acquire(t.Context(), relay.Claim{Route: "orders", Owner: "waits", TTL: lease, Topics: []string{"**"}})
					if err != relay.ErrHeld {
						t.Errorf("after %v another relay asks for the shard: %v, want that it is held", time.Since(began), err)
						break
					}
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(began); took < 3*lease {
					t.Errorf("the work took %v, which is too short to show anything", took)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				wantInOrder(t, broker.Messages("orders"), work.messages)
				if s := r.Stats().Routes[0]; s.LeasesLost != 0 || s.Fenced != 0 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

// A batch of messages that fail again and again stands at the head of a route,
// more of them than may be in hand: new messages, of other keys and of none,
// arrive as ever.
func TestPoisonDoesNotStarveTheNew(t *testing.T) {
	for _, keyed := range []bool{true, false} {
		t.Run(fmt.Sprint("keys ", keyed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
				var refused atomic.Int64
				route := orders(&membroker.Publisher{Broker: broker, Before: func(_ context.Context, m outbox.Message) error {
					time.Sleep(time.Millisecond)
					if m.Type == "poison" {
						refused.Add(1)
						return outbox.Retryable(errTest)
					}
					return nil
				}})
				route.Concurrency = 1
				route.Retry = relay.RetryPolicy{MaxAttempts: 1_000_000, Initial: 10 * time.Millisecond, Factor: 1}
				const poison, news = 1000, 100
				batch := make([]outbox.Message, poison)
				for i := range batch {
					batch[i] = outbox.Message{Topic: "orders", Type: "poison", Payload: []byte("poison")}
					if keyed {
						batch[i].Key = fmt.Sprint("poison ", i)
					}
				}
				enqueue(t, store, batch...)
				_, stop := start(t, relay.Config{Store: store, Limits: relay.Limits{InFlightMessages: poison / 4}, Routes: []relay.Route{route}})
				time.Sleep(10 * time.Second)
				if n := refused.Load(); n < 2*poison {
					t.Fatalf("only %d refusals, so not all have come again", n)
				}
				var longest time.Duration
				for i := 1; i <= news; i++ {
					enqueue(t, store, message([]string{"a", "b", "c", ""}[i%4], i))
					sent := time.Now()
					for len(broker.Messages("orders")) < i && time.Since(sent) < time.Minute {
						time.Sleep(5 * time.Millisecond)
					}
					longest = max(longest, time.Since(sent))
				}
				t.Logf("a new message took %v at most", longest)
				// All the poison at once takes a second.
				if longest > 5*time.Second {
					t.Errorf("a new message took %v", longest)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				wantInOrder(t, broker.Messages("orders"), news)
			})
		})
	}
}
