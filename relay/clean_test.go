package relay_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// cleanedStore is a store that is a Cleaner.
type cleanedStore struct {
	*memstore.Store
	clean func(n int) (relay.Cleaned, error) // n is the number of the call, from 1

	mu    sync.Mutex
	keep  relay.Retention
	calls []time.Time
}

func (s *cleanedStore) Clean(_ context.Context, keep relay.Retention) (relay.Cleaned, error) {
	s.mu.Lock()
	s.keep = keep
	s.calls = append(s.calls, time.Now())
	n := len(s.calls)
	s.mu.Unlock()
	if s.clean == nil {
		return relay.Cleaned{}, nil
	}
	return s.clean(n)
}

func (s *cleanedStore) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

// relayFor runs a relay on the store for a while, and returns its last figures.
func relayFor(t *testing.T, store *cleanedStore, retention relay.Retention, wait time.Duration) relay.CleanStats {
	t.Helper()
	store.Store = memstore.New(memstore.Options{Shards: 1})
	r, err := relay.New(relay.Config{Store: store, Routes: []relay.Route{orders(publisherFunc(nil))}, Retention: retention, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	time.Sleep(wait)
	stats := r.Stats().Clean
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return stats
}

// Old messages are looked for a hundred times within the time for which they
// are kept, between once a second and twice a minute.
func TestRelayCleansFromTimeToTime(t *testing.T) {
	for _, c := range []struct {
		retention relay.Retention
		want      relay.Retention
		least     int // calls within an hour, give or take jitter
		most      int
	}{
		{relay.Retention{}, relay.Retention{Sent: 24 * time.Hour, Failed: relay.Keep}, 90, 170},
		{relay.Retention{Sent: 1}, relay.Retention{Sent: 1, Failed: relay.Keep}, 2800, 4800},
		{relay.Retention{Sent: 1000 * time.Second}, relay.Retention{Sent: 1000 * time.Second, Failed: relay.Keep}, 270, 480},
		{relay.Retention{Sent: relay.Keep, Failed: time.Minute}, relay.Retention{Sent: relay.Keep, Failed: time.Minute}, 2800, 4800},
		{relay.Retention{Sent: relay.Keep}, relay.Retention{}, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var store cleanedStore
			relayFor(t, &store, c.retention, time.Hour)
			if n := store.called(); n < c.least || n > c.most || store.keep != c.want {
				t.Errorf("with %+v it was called %d times with %+v; want %d to %d times with %+v", c.retention, n, store.keep, c.least, c.most, c.want)
			}
		})
	}
}

// While there is more it goes on, but for no more than half of the time.
func TestRelayCleansOnWhileThereIsMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cleanedStore{clean: func(n int) (relay.Cleaned, error) {
			time.Sleep(50 * time.Millisecond)
			return relay.Cleaned{Log: 10, Parked: 1, More: n < 100}, nil
		}}
		stats := relayFor(t, &store, relay.Retention{}, time.Minute)
		if n := store.called(); n < 100 || n > 103 {
			t.Fatalf("it was called %d times", n)
		}
		if took := store.calls[99].Sub(store.calls[0]); took < 99*100*time.Millisecond {
			t.Errorf("100 calls of 50 ms each began within %s", took)
		}
		if stats.Log < 1000 || stats.Parked < 100 || stats.Failures != 0 || stats.LastAt.IsZero() {
			t.Errorf("its figures are %+v", stats)
		}
	})
}

// A store that fails is asked again ever less often, and the relay goes on.
func TestRelayCleansAgainAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cleanedStore{clean: func(n int) (relay.Cleaned, error) {
			if n <= 20 {
				return relay.Cleaned{Log: 1}, errors.New("postgres://shop:secret@db/shop: no room")
			}
			return relay.Cleaned{}, nil
		}}
		stats := relayFor(t, &store, relay.Retention{Sent: 1}, 30*time.Second)
		if n := store.called(); n < 4 || n > 15 {
			t.Errorf("it was called %d times while it failed for 30 s", n)
		}
		if stats.Failures != uint64(store.called()) || stats.LastError != "postgres://shop:xxxxx@db/shop: no room" || stats.Log != stats.Failures {
			t.Errorf("its figures are %+v", stats)
		}
		store = cleanedStore{clean: func(n int) (relay.Cleaned, error) {
			if n == 1 {
				return relay.Cleaned{}, errors.New("no room")
			}
			return relay.Cleaned{}, nil
		}}
		if stats := relayFor(t, &store, relay.Retention{Sent: 1}, 30*time.Second); stats.Failures != 1 || stats.LastError != "" {
			t.Errorf("after one failure its figures are %+v", stats)
		}
	})
}

func TestRetentionIsChecked(t *testing.T) {
	_, err := relay.New(relay.Config{Store: memstore.New(memstore.Options{}), Routes: []relay.Route{orders(publisherFunc(nil))}, Retention: relay.Retention{Sent: -2}})
	if err == nil {
		t.Error("a negative retention is taken")
	}
}
