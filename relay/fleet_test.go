package relay_test

import (
	"context"
	"errors"
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

// sharing is a faulty store with a roster.
type sharing struct {
	*faultyStore
	blind atomic.Bool // the roster alone does not answer
}

func (s *sharing) sharer() (relay.Sharer, error) {
	if s.blind.Load() {
		return nil, errors.New("permission denied for table member")
	}
	return s.Store.(relay.Sharer), s.check(false)
}

func (s *sharing) Look(ctx context.Context, self relay.Member, ttl time.Duration) (relay.Roster, error) {
	sharer, err := s.sharer()
	if err != nil {
		return relay.Roster{}, err
	}
	return sharer.Look(ctx, self, ttl)
}

func (s *sharing) Leave(ctx context.Context, owner string) error {
	sharer, err := s.sharer()
	if err != nil {
		return err
	}
	return sharer.Leave(ctx, owner)
}

// fleet is several relays on one store, with a stream of messages.
type fleet struct {
	t      *testing.T
	store  *memstore.Store
	broker *membroker.Broker
	sent   int
	crew   map[string]*sailor
}

// sailor is one relay of a fleet.
type sailor struct {
	*relay.Relay
	store *sharing
	dead  atomic.Bool
	stop  func() error
}

const soon = 1500 * time.Millisecond // two looks, and what is done after them

func newFleet(t *testing.T, shards int) *fleet {
	return &fleet{t: t, store: memstore.New(memstore.Options{Shards: shards}), broker: membroker.New(), crew: make(map[string]*sailor)}
}

func (f *fleet) join(name string, routes ...string) *sailor {
	f.t.Helper()
	s := &sailor{store: &sharing{faultyStore: &faultyStore{Store: f.store}}}
	return f.joinWith(name, s, s.store, routes...)
}

func (f *fleet) joinWith(name string, s *sailor, store relay.Store, routes ...string) *sailor {
	f.t.Helper()
	if routes == nil {
		routes = []string{"orders"}
	}
	config := relay.Config{Store: store, Owner: name}
	for _, route := range routes {
		publisher := &membroker.Publisher{Broker: f.broker, Queue: route, Before: func(context.Context, outbox.Message) error {
			time.Sleep(2 * time.Millisecond)
			return nil
		}}
		config.Routes = append(config.Routes, relay.Route{Name: route, Topics: []string{"orders"}, Publisher: mortal{publisher, &s.dead}})
	}
	s.Relay, s.stop = start(f.t, config)
	synctest.Wait() // it is on the roster, so that the next one joins after it
	f.crew[name] = s
	return s
}

// leave stops a relay well.
func (f *fleet) leave(name string) {
	f.t.Helper()
	if err := f.crew[name].stop(); err != nil {
		f.t.Errorf("%s: %v", name, err)
	}
	delete(f.crew, name)
}

// die cuts a relay off from the store and the broker.
func (f *fleet) die(name string) {
	s := f.crew[name]
	delete(f.crew, name)
	s.store.set(errAway)
	s.dead.Store(true)
	f.t.Cleanup(func() { _ = s.stop() })
}

func (f *fleet) end() {
	f.t.Helper()
	for name := range f.crew {
		f.leave(name)
	}
}

// sail lets time pass while messages come.
func (f *fleet) sail(d time.Duration) {
	f.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		f.sent++
		enqueue(f.t, f.store, message(fmt.Sprint("k", f.sent%17), f.sent))
	}
}

// has checks how many shards of the route each relay holds, all at once.
func (f *fleet) has(route string, want map[string]int) {
	f.t.Helper()
	held := make(map[string]int)
	for name, s := range f.crew {
		for _, r := range s.Stats().Routes {
			if r.Name == route {
				held[name] = r.ShardsHeld
				if r.Quota != r.ShardsHeld && !r.Paused {
					f.t.Errorf("%s holds %d shards of %s, and its part is %d", name, r.ShardsHeld, route, r.Quota)
				}
			}
		}
	}
	for name, n := range want {
		if held[name] != n {
			f.t.Errorf("%s: held are %v, want %v", route, held, want)
			return
		}
	}
}

func (f *fleet) handedOver() (n int) {
	for _, s := range f.crew {
		for _, r := range s.Stats().Routes {
			n += int(r.HandedOver)
		}
	}
	return n
}

// arrived checks that everything arrived once and in order.
func (f *fleet) arrived(routes ...string) {
	f.t.Helper()
	time.Sleep(time.Minute)
	for _, route := range routes {
		wantInOrder(f.t, f.broker.Messages(route), f.sent)
	}
}
