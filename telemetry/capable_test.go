package telemetry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
	"github.com/postrider/postrider/telemetry"
)

// What else a store, a lease and a publisher can do, the relay finds behind the
// measurement, whatever that is: they unwrap to what they measure.
func TestTheMeasuredUnwrap(t *testing.T) {
	timings, store, p := telemetry.NewTimings(), memstore.New(memstore.Options{Shards: 1}), &resolving{}
	measured := timings.Store(store)
	if w, ok := measured.(interface{ Unwrap() relay.Store }); !ok || w.Unwrap() != relay.Store(store) {
		t.Errorf("a measured store is %T", measured)
	}
	if w, ok := timings.Publisher("r", p).(interface{ Unwrap() outbox.Publisher }); !ok || w.Unwrap() != outbox.Publisher(p) {
		t.Errorf("a measured publisher is %T", timings.Publisher("r", p))
	}
	claim := relay.Claim{Route: "r", Owner: "o", TTL: time.Minute, Topics: []string{"**"}}
	lease, err := measured.Acquire(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	w, ok := lease.(interface{ Unwrap() relay.Lease })
	if !ok {
		t.Fatalf("a measured lease is %T", lease)
	}
	if _, ok := w.Unwrap().(relay.DeathCounter); !ok {
		t.Errorf("it unwraps to %T", w.Unwrap())
	}
}

type resolving struct{ broker }

func (*resolving) Destination(m *outbox.Message) string { return "to " + m.Topic }

type cleaning struct {
	*memstore.Store
	cleaned chan struct{}
}

func (c *cleaning) Clean(context.Context, relay.Retention) (relay.Cleaned, error) {
	select {
	case c.cleaned <- struct{}{}:
	default:
	}
	return relay.Cleaned{}, nil
}

// A measured relay cleans, sees the roster, and knows its destinations.
func TestAMeasuredRelayCanWhatItCould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timings := telemetry.NewTimings()
		store := &cleaning{memstore.New(memstore.Options{Shards: 1}), make(chan struct{}, 1)}
		r, err := relay.New(relay.Config{
			Store: timings.Store(store), Owner: "o",
			Routes: []relay.Route{{Name: "r", Topics: []string{"**"}, Publisher: timings.Publisher("r", &resolving{broker{[]outbox.Result{{}}}})}},
		})
		if err != nil {
			t.Fatal(err)
		}
		tx := store.Begin()
		for _, topic := range []string{"a", "b"} {
			if err := outbox.NewWriter(store.Store).Enqueue(t.Context(), tx, outbox.Message{Topic: topic}); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(time.Hour)
		s := r.Stats()
		if s.Members != 1 {
			t.Errorf("it sees %d relays", s.Members)
		}
		if n := s.Routes[0].DestinationsKnown; n != 2 {
			t.Errorf("it knows %d destinations", n)
		}
		select {
		case <-store.cleaned:
		default:
			t.Error("it does not clean")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
