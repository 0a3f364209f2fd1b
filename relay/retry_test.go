package relay_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

var errTest = errors.New("refused by the test")

// script refuses messages by payload: each gets its errors, one per try, and
// is accepted after the last. It counts the tries.
type script struct {
	mu     sync.Mutex
	errors map[string][]error
	tries  map[string]int
	total  int
}

func (s *script) before(_ context.Context, m outbox.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tries == nil {
		s.tries = make(map[string]int)
	}
	n, p := s.tries[string(m.Payload)], string(m.Payload)
	s.tries[p]++
	s.total++
	if n < len(s.errors[p]) {
		return s.errors[p][n]
	}
	return nil
}

func (s *script) count(payload string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tries[payload]
}

func times(n int, err error) []error { return slices.Repeat([]error{err}, n) }

func TestRetriesKeepTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		faults := script{errors: map[string][]error{"2": times(2, outbox.Retryable(errTest))}}
		r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker, Before: faults.before})}})
		numbers(t, store, 5, "k")
		time.Sleep(time.Second / 2)
		enqueue(t, store, message("k", 6)) // while the key is closed
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := payloads(broker.Messages("orders")); !slices.Equal(got, []string{"1", "2", "3", "4", "5", "6"}) {
			t.Errorf("arrived %q", got)
		}
		if got := faults.count("2"); got != 3 {
			t.Errorf("message 2 was tried %d times, want 3", got)
		}
		if left := store.Parked("orders"); len(left) != 0 {
			t.Errorf("still parked: %+v", left)
		}
		if s := r.Stats().Routes[0]; s.Retried != 2 || s.Failed != 0 || s.Sent != 6 || s.Blocked < 4 {
			t.Errorf("stats %+v", s)
		}
	})
}

// The same over a restart: the new relay knows which keys are closed.
func TestRetriesKeepTheOrderOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		faults := script{errors: map[string][]error{"2": times(3, outbox.Retryable(errTest))}}
		config := relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker, Before: faults.before})}}
		for range 8 {
			_, stop := start(t, config)
			time.Sleep(500 * time.Millisecond)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if store.Parked("orders") == nil {
				numbers(t, store, 5, "k")
			}
		}
		_, stop := start(t, config)
		enqueue(t, store, message("k", 6))
		time.Sleep(20 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		wantInOrder(t, broker.Messages("orders"), 6)
	})
}

func TestParallelWorkersKeepTheOrderOfEachKey(t *testing.T) {
	seed := uint64(testsize.Seed(t))
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(seed, 0))
		running := make(map[string]bool)
		var most, now int
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		route := orders(&membroker.Publisher{Broker: broker, Before: func(_ context.Context, m outbox.Message) error {
			mu.Lock()
			if running[m.Key] && m.Key != "" {
				t.Errorf("two messages of key %q at the same time", m.Key)
			}
			running[m.Key] = true
			now++
			most = max(most, now)
			d := time.Duration(random.IntN(5000)) * time.Microsecond
			mu.Unlock()
			time.Sleep(d)
			mu.Lock()
			running[m.Key] = false
			now--
			mu.Unlock()
			return nil
		}})
		route.Concurrency = 10
		_, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{route}})
		keys := []string{""}
		for i := range 30 {
			keys = append(keys, fmt.Sprint("k", i))
		}
		const n = 2000
		numbers(t, store, n, keys...)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		wantInOrder(t, broker.Messages("orders"), n)
		if most != 10 {
			t.Errorf("at most %d publishes ran at the same time, want 10", most)
		}
	})
}

func TestPartialFailureRetriesExactlyTheFailedOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
		faults := script{errors: map[string][]error{
			"3": times(1, outbox.Retryable(errTest)), "7": times(2, errTest), // without a class: retryable
		}}
		route := orders(&membroker.Publisher{Broker: broker, Before: faults.before})
		route.Concurrency = 1
		_, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{route}})
		var batch []outbox.Message
		for i := 1; i <= 10; i++ {
			batch = append(batch, message("", i))
		}
		enqueue(t, store, batch...)
		time.Sleep(20 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		wantInOrder(t, broker.Messages("orders"), 10)
		for i := 1; i <= 10; i++ {
			want := map[int]int{3: 2, 7: 3}[i]
			if got := faults.count(fmt.Sprint(i)); got != max(want, 1) {
				t.Errorf("message %d was tried %d times, want %d", i, got, max(want, 1))
			}
		}
	})
}

func TestOneUnknownDestinationAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		faults := script{errors: map[string][]error{"50": times(100, outbox.Permanent(errors.New("no such queue")))}}
		r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker, Before: faults.before})}})
		numbers(t, store, 100, "a", "b", "c")
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := len(broker.Messages("orders")); got != 99 {
			t.Errorf("%d messages arrived, want 99", got)
		}
		parked := store.Parked("orders")
		if len(parked) != 1 || parked[0].State != outbox.StateFailed || parked[0].Attempts != 1 || parked[0].Error != "no such queue" {
			t.Errorf("parked: %+v", parked)
		}
		if s := r.Stats().Routes[0]; s.Failed != 1 || s.Sent != 99 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestRetriesBackOffAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		route := orders(&membroker.Publisher{Broker: membroker.New(), Before: func(context.Context, outbox.Message) error {
			at = append(at, time.Since(begin).Round(100*time.Millisecond))
			return errTest
		}})
		route.Retry = relay.RetryPolicy{MaxAttempts: 5, Initial: time.Second, Factor: 3, Max: 5 * time.Second, Jitter: -1}
		store := memstore.New(memstore.Options{})
		_, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{route}})
		numbers(t, store, 1, "k")
		time.Sleep(time.Hour)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, time.Second, 4 * time.Second, 9 * time.Second, 14 * time.Second}
		if !slices.Equal(at, want) {
			t.Errorf("tried at %v, want %v", at, want)
		}
		if p := store.Parked("orders"); len(p) != 1 || p[0].State != outbox.StateFailed || p[0].Attempts != 5 {
			t.Errorf("parked: %+v", p)
		}
	})
}

// After a failure the later messages of the key go on, or wait, by route; the
// failure is on record before any of them is published.
func TestOnFailure(t *testing.T) {
	for _, what := range []relay.OnFailure{relay.Release, relay.Hold} {
		t.Run(string(what), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, broker := memstore.New(memstore.Options{}), membroker.New()
				faults := script{errors: map[string][]error{"2": times(9, outbox.Permanent(errTest))}}
				route := orders(&membroker.Publisher{Broker: broker, Before: func(ctx context.Context, m outbox.Message) error {
					if n := string(m.Payload); m.Key == "k" && n > "2" && !slices.ContainsFunc(store.Parked("orders"), func(p memstore.Parked) bool {
						return p.State == outbox.StateFailed
					}) {
						t.Errorf("message %s published before the failure of 2 was recorded", n)
					}
					return faults.before(ctx, m)
				}})
				route.OnFailure = what
				config := relay.Config{Store: store, Routes: []relay.Route{route}}
				var batch []outbox.Message
				for i := 1; i <= 5; i++ {
					batch = append(batch, message("k", i))
				}
				enqueue(t, store, batch...)
				_, stop := start(t, config)
				time.Sleep(time.Second)
				enqueue(t, store, message("k", 6), message("other", 7))
				time.Sleep(time.Second)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				_, stop = start(t, config)
				time.Sleep(time.Second)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				want := "1 3 4 5 6 7"
				if what == relay.Hold {
					want = "1 7"
				}
				got := payloads(broker.Messages("orders"))
				slices.Sort(got)
				if strings.Join(got, " ") != want {
					t.Errorf("arrived %v, want %s", got, want)
				}
			})
		})
	}
}

// A long line behind a retried message neither fills the memory nor comes out
// of order, and messages of other keys pass by it.
func TestLongLineBehindARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
		faults := script{errors: map[string][]error{"1": times(5, errTest), "300": times(2, errTest)}}
		r, stop := start(t, relay.Config{Store: store, Limits: relay.Limits{InFlightMessages: 50}, Routes: []relay.Route{
			orders(&membroker.Publisher{Broker: broker, Before: faults.before})}})
		const n = 1000
		numbers(t, store, n, "k")
		enqueue(t, store, message("other", n+1))
		time.Sleep(2 * time.Second)
		if got := payloads(broker.Messages("orders")); !slices.Equal(got, []string{fmt.Sprint(n + 1)}) {
			t.Errorf("beside the line arrived %q", got)
		}
		if s := r.Stats().Routes[0]; s.InFlight > 50 {
			t.Errorf("%d messages in hand, at most 50 are allowed", s.InFlight)
		}
		time.Sleep(5 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		wantInOrder(t, broker.Messages("orders"), n+1)
		if left := store.Parked("orders"); len(left) != 0 {
			t.Errorf("%d still parked", len(left))
		}
	})
}

// A message that was parked, over a restart too, arrives as it was written.
func TestRetriedMessageIsUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		faults := script{errors: map[string][]error{"\x00\xff{}": times(3, errTest)}}
		config := relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker, Before: faults.before})}}
		id, err := outbox.NewID()
		if err != nil {
			t.Fatal(err)
		}
		want := outbox.Message{
			ID: id, Topic: "orders", Key: "k🐎", Type: "order.created", Payload: []byte("\x00\xff{}"), ContentType: "x/y",
			Headers: map[string]string{"a": "", "traceparent": "00-1-2-00", "ü\n": "🐎"},
		}
		enqueue(t, store, want)
		for range 3 {
			_, stop := start(t, config)
			time.Sleep(2 * time.Second)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		}
		_, stop := start(t, config)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		got := broker.Messages("orders")
		if len(got) != 1 {
			t.Fatalf("%d messages arrived", len(got))
		}
		want.CreatedAt = got[0].CreatedAt
		if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Error(diff)
		}
	})
}
