package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// A destination that was away gets everything once it is back: each message
// once, in the order of its key, also what was parked meanwhile, and also when
// the relay was restarted in between. No attempt is spent.
func TestParkedWhileAwayKeepTheOrder(t *testing.T) {
	for name, key := range map[string]func(int, int) string{"without keys": noKey, "seven keys each": someKeys, "one key each": fewKeys} {
		for _, fault := range []string{"away", "hangs"} {
			for _, mode := range []string{"called back", "not called back", "restart"} {
				t.Run(fmt.Sprintf("%s/%s/%s", name, fault, mode), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { parkedAndBack(t, faults[fault], key, mode) })
				})
			}
		}
	}
}

func parkedAndBack(t *testing.T, fault fault, key func(int, int) string, mode string) {
	store, broker := memstore.New(memstore.Options{}), membroker.New()
	var away atomic.Bool
	route := queues(&membroker.Publisher{Broker: broker, Before: func(ctx context.Context, m outbox.Message) error {
		if m.Topic == "q1" && away.Load() {
			return fault(ctx)
		}
		return nil
	}})
	config := relay.Config{
		Store:  &faultyStore{Store: store, recalls: mode == "called back"},
		Limits: relay.Limits{InFlightMessages: 200}, Routes: []relay.Route{route},
	}
	r, stop := start(t, config)
	const n = 2000
	const before = 100
	fill(t, store, 3, before, key)
	time.Sleep(time.Second)
	away.Store(true)
	for i := before + 1; i <= n; i++ {
		fillOne(t, store, 3, i, key)
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Minute)
	for _, topic := range []string{"q0", "q2"} {
		if got := len(broker.Messages(topic)); got != n {
			t.Errorf("%d messages arrived at %s while another one is away, want %d", got, topic, n)
		}
	}
	if got := len(broker.Messages("q1")); got > before {
		t.Errorf("%d messages arrived where they could not", got)
	}
	s := r.Stats().Routes[0]
	if !s.BreakerOpen || s.DestinationsAway != 1 || len(s.Destinations) != 1 || s.Destinations[0].Name != "q1" || s.Destinations[0].Error == "" || s.Destinations[0].Parked < n/2 {
		t.Errorf("nothing shows what is away: %+v", s)
	}
	states := make(map[outbox.State]int)
	for _, p := range store.Parked("queues") {
		states[p.State]++
		if p.Attempts > 0 || !strings.HasPrefix(p.Message.Topic, "q1") {
			t.Errorf("parked: %+v", p)
		}
	}
	t.Logf("parked: %v", states)
	if mode == "restart" {
		_ = stop() // what hangs may have arrived
		r, stop = start(t, config)
		time.Sleep(time.Minute)
	}
	away.Store(false)
	if mode == "called back" {
		time.Sleep(25 * time.Second) // till a probe finds out, when the one under way has hung
	} else {
		time.Sleep(2 * time.Minute)
	}
	if s := r.Stats().Routes[0]; s.BreakerOpen || s.DestinationsAway != 0 || s.Retried+s.Failed > 0 {
		t.Errorf("attempts were spent, or it is not back: %+v", s)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for topic := range 3 {
		wantInOrder(t, broker.Messages(fmt.Sprint("q", topic)), n)
	}
	if left := store.Parked("queues"); len(left) > 0 {
		t.Errorf("%d still parked", len(left))
	}
}

// The route reads no more once as much is parked as may be, which shows; the
// other route goes on. When the destination is back everything arrives.
func TestBoundOfWhatIsParked(t *testing.T) {
	for name, key := range map[string]func(int, int) string{"without keys": noKey, "seven keys each": someKeys} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fillTheParking(t, key) })
		})
	}
}

func fillTheParking(t *testing.T, key func(int, int) string) {
	var logged bytes.Buffer
	store, broker := memstore.New(memstore.Options{}), membroker.New()
	var away atomic.Bool
	away.Store(true)
	several := queues(&membroker.Publisher{Broker: broker, Before: func(_ context.Context, m outbox.Message) error {
		if m.Topic == "q1" && away.Load() {
			return outbox.Unavailable(errAway)
		}
		return nil
	}})
	copies := relay.Route{Name: "copies", Topics: []string{"q*"}, Publisher: &membroker.Publisher{Broker: broker, Queue: "copies"}}
	const n, limit = 3000, 400
	r, stop := start(t, relay.Config{
		Store: store, Routes: []relay.Route{several, copies}, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		Limits: relay.Limits{InFlightMessages: 2 * 100, ParkedPending: 2 * limit},
	})
	for i := 1; i <= n; i++ {
		fillOne(t, store, 2, i, key)
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(time.Minute)
	s := r.Stats()
	if got := len(broker.Messages("copies")); got != 2*n {
		t.Errorf("%d messages arrived on the other route, want %d", got, 2*n)
	}
	if s := s.Routes[0]; s.ReadingStopped.IsZero() || len(s.Destinations) != 1 || s.Destinations[0].Parked < limit || s.Received == 2*n {
		t.Errorf("the route should read no more: %+v", s)
	}
	// A page for each shard may have been on its way.
	if got := len(store.Parked("queues")); got > limit+2*100 {
		t.Errorf("%d messages are parked, at most about %d may be", got, limit)
	}
	if got := strings.Count(logged.String(), "the route reads no more"); got == 0 || got > 3 {
		t.Errorf("logged %d times that the route reads no more", got)
	}
	away.Store(false)
	time.Sleep(2 * time.Minute)
	if s := r.Stats().Routes[0]; !s.ReadingStopped.IsZero() || s.Retried+s.Failed > 0 {
		t.Errorf("stats %+v", s)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for topic := range 2 {
		wantInOrder(t, broker.Messages(fmt.Sprint("q", topic)), n)
	}
}

// Very many messages for a destination that stays away cost few writes and few
// calls.
func TestManyParkedDoNotSpin(t *testing.T) {
	for _, recalls := range []bool{false, true} {
		t.Run(fmt.Sprint("called back=", recalls), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, broker := memstore.New(memstore.Options{}), membroker.New()
				var calls atomic.Int64
				r, stop := start(t, relay.Config{
					Store: &faultyStore{Store: store, recalls: recalls}, Limits: relay.Limits{InFlightMessages: 500},
					Routes: []relay.Route{queues(&membroker.Publisher{Broker: broker, Before: func(ctx context.Context, m outbox.Message) error {
						if m.Topic == "q1" {
							calls.Add(1)
							return outbox.Unavailable(errAway)
						}
						return nil
					}})},
				})
				const n = 10_000
				fill(t, store, 2, n, noKey)
				time.Sleep(time.Minute)
				if got := len(broker.Messages("q0")); got != n {
					t.Errorf("%d messages arrived at the other destination, want %d", got, n)
				}
				before, tried := r.Stats().Routes[0].Pending, calls.Load()
				time.Sleep(10 * time.Minute)
				again, tried := r.Stats().Routes[0].Pending-before, calls.Load()-tried
				t.Logf("of %d messages, in ten minutes: parked again %d times, tried %d times", n, again, tried)
				if again > 10*n { // 100 s each
					t.Errorf("parked again %d times in ten minutes", again)
				}
				if tried > 10*10 {
					t.Errorf("tried %d times in ten minutes", tried)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
