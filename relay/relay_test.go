package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// quiet discards what a relay logs.
var quiet = slog.New(slog.DiscardHandler)

// enqueue commits messages in one transaction.
func enqueue(t testing.TB, store *memstore.Store, msgs ...outbox.Message) {
	t.Helper()
	tx := store.Begin()
	if err := outbox.NewWriter(store).Enqueue(context.Background(), tx, msgs...); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// message is number n of a key, on topic orders.
func message(key string, n int) outbox.Message {
	return outbox.Message{Topic: "orders", Key: key, Payload: strconv.AppendInt(nil, int64(n), 10)}
}

// numbers enqueues the messages 1 to n, over the given keys in turn.
func numbers(t testing.TB, store *memstore.Store, n int, keys ...string) {
	t.Helper()
	for i := 1; i <= n; i++ {
		enqueue(t, store, message(keys[i%len(keys)], i))
	}
}

// start runs a relay; the function that it returns stops it and returns what
// Run did.
func start(t testing.TB, config relay.Config) (*relay.Relay, func() error) {
	t.Helper()
	if config.Logger == nil {
		config.Logger = quiet
	}
	r, err := relay.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return r, func() error {
		cancel()
		return <-done
	}
}

// orders is a route from topic orders to the publisher.
func orders(publisher outbox.Publisher) relay.Route {
	return relay.Route{Name: "orders", Topics: []string{"orders"}, Publisher: publisher}
}

func payloads(msgs []outbox.Message) []string {
	out := make([]string, len(msgs))
	for i, m := range msgs {
		out[i] = string(m.Payload)
	}
	return out
}

// wantInOrder checks that the messages 1 to n arrived, each of them exactly
// once, and in order within each key.
func wantInOrder(t testing.TB, got []outbox.Message, n int) {
	t.Helper()
	seen, last := make(map[int]int), make(map[string]int)
	for _, m := range got {
		number, err := strconv.Atoi(string(m.Payload))
		if err != nil {
			t.Fatal(err)
		}
		seen[number]++
		if m.Key != "" && seen[number] == 1 {
			if number < last[m.Key] {
				t.Errorf("key %q: %d arrived after %d", m.Key, number, last[m.Key])
			}
			last[m.Key] = number
		}
	}
	for i := 1; i <= n; i++ {
		if seen[i] != 1 {
			t.Errorf("message %d arrived %d times, want once", i, seen[i])
		}
	}
	if len(seen) != n {
		t.Errorf("%d different messages arrived, want %d", len(seen), n)
	}
}

func TestDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker})}})
		numbers(t, store, 1000, "a", "b", "c", "")
		enqueue(t, store, outbox.Message{Topic: "other"})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		wantInOrder(t, broker.Messages("orders"), 1000)
		if got := len(broker.Messages("other")); got != 0 {
			t.Errorf("%d messages of a topic without a route arrived", got)
		}
		if s := r.Stats().Routes[0]; s.Sent != 1000 || s.Received != 1000 || s.InFlight != 0 || s.ShardsHeld != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// Every matching route gets each message, and keeps its own place.
func TestRoutesAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		away := &membroker.Publisher{Broker: broker, Queue: "away", Before: func(ctx context.Context, _ outbox.Message) error {
			<-ctx.Done()
			return outbox.TimedOut(ctx.Err())
		}}
		_, stop := start(t, relay.Config{Store: store, Limits: relay.Limits{InFlightMessages: 100}, Routes: []relay.Route{
			{Name: "away", Topics: []string{"**"}, Publisher: away},
			{Name: "all", Topics: []string{"**"}, Publisher: &membroker.Publisher{Broker: broker, Queue: "all"}},
			{Name: "some", Topics: []string{"billing.*"}, Publisher: &membroker.Publisher{Broker: broker, Queue: "some"}},
		}})
		for i := range 1000 {
			enqueue(t, store, outbox.Message{Topic: "billing.paid"}, outbox.Message{Topic: "orders", Key: strconv.Itoa(i % 10)})
		}
		time.Sleep(2 * time.Second)
		if n := len(broker.Messages("all")); n != 2000 {
			t.Errorf("%d messages arrived on the route for all, beside one that hangs, want 2000", n)
		}
		if n := len(broker.Messages("some")); n != 1000 {
			t.Errorf("%d messages arrived on the route for some, want 1000", n)
		}
		_ = stop() // the hanging ones may have arrived
	})
}

// Two relays in one process, each with its own store, share nothing.
func TestRelaysShareNoState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stops []func() error
		var brokers []*membroker.Broker
		for i := range 2 {
			store, broker := memstore.New(memstore.Options{}), membroker.New()
			brokers = append(brokers, broker)
			publisher := &membroker.Publisher{Broker: broker}
			if i == 1 {
				publisher.Before = func(context.Context, outbox.Message) error {
					return outbox.Unavailable(fmt.Errorf("away"))
				}
			}
			r, stop := start(t, relay.Config{Store: store, Owner: "same", Routes: []relay.Route{orders(publisher)}})
			stops = append(stops, stop)
			numbers(t, store, 100*(i+1), "a", "b")
			defer func() {
				if s := r.Stats().Routes[0]; s.Received != uint64(100*(i+1)) || s.Unavailable > 0 != (i == 1) {
					t.Errorf("relay %d: %+v", i, s)
				}
			}()
		}
		time.Sleep(5 * time.Second)
		for _, stop := range stops {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		wantInOrder(t, brokers[0].Messages("orders"), 100)
		wantInOrder(t, brokers[1].Messages("orders"), 0)
	})
}

func TestConfigurationProblemsAreReportedTogether(t *testing.T) {
	publisher := &membroker.Publisher{Broker: membroker.New()}
	_, err := relay.New(relay.Config{
		Lease: 5 * time.Second,
		Routes: []relay.Route{
			{Name: "a", Topics: []string{"x"}, Publisher: publisher, PublishTimeout: 6 * time.Second},
			{Name: "a", Topics: nil, Order: "sometimes", OnFailure: "shrug", Start: "later", Rate: -1},
			{Name: "b", Topics: []string{"x"}, Publisher: publisher, Retry: relay.RetryPolicy{Initial: time.Minute, Max: time.Second, Factor: 0.5, Jitter: 2}},
		},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"no store", "publish timeout 6s is too long for a lease of 5s", "its name is taken", "no topic pattern", "no publisher",
		`"sometimes"`, `"shrug"`, `"later"`, "rate -1", "longest wait", "factor 0.5", "jitter 2",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if _, err := relay.New(relay.Config{Store: memstore.New(memstore.Options{}), Routes: []relay.Route{orders(publisher)}}); err != nil {
		t.Errorf("defaults are refused: %v", err)
	}
}

// A lease must outlast a publish, or two relays publish the same message.
func TestLeaseShorterThanPublishIsRefused(t *testing.T) {
	for timeout, ok := range map[time.Duration]bool{
		15 * time.Second: false, 16 * time.Second: false, 15*time.Second - time.Millisecond: false, 10 * time.Second: true,
	} {
		route := orders(&membroker.Publisher{Broker: membroker.New()})
		route.PublishTimeout = timeout
		_, err := relay.New(relay.Config{Store: memstore.New(memstore.Options{}), Lease: 15 * time.Second, Routes: []relay.Route{route}})
		if (err == nil) != ok {
			t.Errorf("publish timeout %v with a lease of 15s: %v", timeout, err)
		}
	}
}

func TestRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := start(t, relay.Config{Store: memstore.New(memstore.Options{}), Routes: []relay.Route{orders(&membroker.Publisher{Broker: membroker.New()})}})
		synctest.Wait()
		if err := r.Run(t.Context()); err == nil {
			t.Error("a second Run was accepted")
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A message that is committed late, behind numbers that were handed out, is
// not lost, neither while the relay runs nor over a restart.
func TestLateCommitsArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
		config := relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker})}}
		late := make([]*memstore.Tx, 3)
		for i := range late {
			late[i] = store.Begin()
			if err := outbox.NewWriter(store).Enqueue(t.Context(), late[i], message("late", i+1)); err != nil {
				t.Fatal(err)
			}
		}
		_, stop := start(t, config)
		enqueue(t, store, message("k", 10))
		time.Sleep(time.Second)
		if got := payloads(broker.Messages("orders")); !slices.Equal(got, []string{"10"}) {
			t.Fatalf("beside an open transaction arrived %q", got)
		}
		_ = late[0].Commit()
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		_ = late[1].Commit()
		_ = late[2].Rollback()
		_, stop = start(t, config)
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := payloads(broker.Messages("orders")); !slices.Equal(got, []string{"10", "1", "2"}) {
			t.Errorf("arrived %q", got)
		}
	})
}
