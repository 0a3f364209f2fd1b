package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// oneShardFails is a store that cannot hand out the lease of one shard, or
// what is in it.
type oneShardFails struct {
	relay.Store
	shard            int
	acquire, receive error
	mended           atomic.Bool
}

func (s *oneShardFails) Acquire(ctx context.Context, claim relay.Claim) (relay.Lease, error) {
	if s.mended.Load() || claim.Shard != s.shard {
		return s.Store.Acquire(ctx, claim)
	}
	if s.acquire != nil {
		return nil, s.acquire
	}
	lease, err := s.Store.Acquire(ctx, claim)
	if err == nil && s.receive != nil {
		return &cannotReceive{lease, s.receive}, nil
	}
	return lease, err
}

type cannotReceive struct {
	relay.Lease
	err error
}

func (l *cannotReceive) Receive(context.Context, int) ([]relay.Delivery, error) { return nil, l.err }

// The figures name a shard that stands still, for as long as it does.
func TestAShardThatStandsStillIsNamed(t *testing.T) {
	for name, store := range map[string]*oneShardFails{"acquire": {acquire: errTest}, "receive": {receive: errTest}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store.Store, store.shard = memstore.New(memstore.Options{Shards: 4}), 2
				r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: membroker.New()})}})
				began := time.Now()
				time.Sleep(time.Minute)
				for range 10 {
					failing := r.Stats().Routes[0].ShardsFailing
					if len(failing) != 1 || failing[0].Shard != 2 || failing[0].Error == "" || failing[0].Since.Sub(began) > time.Second {
						t.Fatalf("failing: %+v", failing)
					}
					time.Sleep(time.Second)
				}
				store.mended.Store(true)
				time.Sleep(time.Minute)
				if failing := r.Stats().Routes[0].ShardsFailing; len(failing) != 0 {
					t.Errorf("failing though it is well: %+v", failing)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A shard that is another relay's is none that fails.
func TestAShardOfAnotherRelayDoesNotFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New(memstore.Options{Shards: 1})
		store := &oneShardFails{Store: inner, acquire: errTest}
		r, stop := start(t, relay.Config{Store: store, Owner: "a", Routes: []relay.Route{orders(&membroker.Publisher{Broker: membroker.New()})}})
		time.Sleep(time.Second)
		if failing := r.Stats().Routes[0].ShardsFailing; len(failing) != 1 {
			t.Errorf("failing: %+v", failing)
		}
		if _, err := inner.Acquire(t.Context(), relay.Claim{Route: "orders", Owner: "b", TTL: time.Hour, Topics: []string{"**"}}); err != nil {
			t.Fatal(err)
		}
		store.mended.Store(true)
		time.Sleep(time.Minute)
		if failing := r.Stats().Routes[0].ShardsFailing; len(failing) != 0 {
			t.Errorf("failing: %+v", failing)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
