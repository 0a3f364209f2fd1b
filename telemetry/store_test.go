package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
	"github.com/postrider/postrider/telemetry"
)

func TestStoreCollector(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	status := admin.Status{At: now, Unrouted: []admin.Unrouted{{Topic: "x", Messages: 2}, {Topic: "y", Messages: 3}}, Routes: []admin.RouteStatus{
		{Name: "orders", Pending: 12, OldestPending: now.Add(-90 * time.Second), Parked: []admin.StateCount{{State: outbox.StateFailed, Count: 4, Oldest: now.Add(-time.Hour)}}},
		{Name: "bad \xff name", Paused: true, Orphaned: true, OldestPending: now.Add(time.Hour)}, // a clock that was set back
		{Name: "old", Orphaned: true},
	}}
	c := telemetry.NewStoreCollector(telemetry.StoreConfig{Status: func(context.Context, admin.StatusOptions) (admin.Status, error) { return status, nil }})
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	err := testutil.CollectAndCompare(c, strings.NewReader(`
# HELP postrider_oldest_pending_age_seconds How long the oldest message has waited for its first outcome; 0 if none waits. The same from every relay.
# TYPE postrider_oldest_pending_age_seconds gauge
postrider_oldest_pending_age_seconds{route="bad � name"} 0
postrider_oldest_pending_age_seconds{route="old"} 0
postrider_oldest_pending_age_seconds{route="orders"} 90
# HELP postrider_oldest_parked_age_seconds How long ago the oldest parked message of a state was enqueued. The same from every relay.
# TYPE postrider_oldest_parked_age_seconds gauge
postrider_oldest_parked_age_seconds{route="orders",state="failed"} 3600
# HELP postrider_route_orphaned 1 if no relay serves the route. The same from every relay.
# TYPE postrider_route_orphaned gauge
postrider_route_orphaned{route="bad � name"} 0
postrider_route_orphaned{route="old"} 1
postrider_route_orphaned{route="orders"} 0
# HELP postrider_unrouted_messages Recent messages whose topic no route takes. The same from every relay.
# TYPE postrider_unrouted_messages gauge
postrider_unrouted_messages 5
# HELP postrider_store_up 1 if the database answered when it was last asked how the routes stand.
# TYPE postrider_store_up gauge
postrider_store_up 1
`), "postrider_oldest_pending_age_seconds", "postrider_oldest_parked_age_seconds", "postrider_route_orphaned", "postrider_unrouted_messages", "postrider_store_up")
	if err != nil {
		t.Error(err)
	}
}

// A scrape asks seldom, waits no longer than the time-out, and goes on without the
// figures when the database does not answer.
func TestScrapesSpareTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, hang, takes := 0, false, time.Duration(0)
		c := telemetry.NewStoreCollector(telemetry.StoreConfig{Status: func(ctx context.Context, o admin.StatusOptions) (admin.Status, error) {
			asked++
			if o.CountUpTo != 10_000 {
				t.Errorf("counts up to %d", o.CountUpTo)
			}
			if hang {
				<-ctx.Done()
				return admin.Status{}, ctx.Err()
			}
			time.Sleep(takes)
			return admin.Status{}, nil
		}})
		scrape := func(up float64) time.Duration {
			t.Helper()
			start := time.Now()
			if got := gather(t, c)["postrider_store_up"]; got != up {
				t.Errorf("up is %v, want %v", got, up)
			}
			return time.Since(start)
		}
		for range 100 {
			scrape(1)
		}
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		time.Sleep(6 * time.Second)
		takes = time.Second
		scrape(1)
		time.Sleep(9 * time.Second) // an answer that took a second is used for ten
		scrape(1)
		if asked != 2 {
			t.Errorf("asked %d times, want 2", asked)
		}
		time.Sleep(2 * time.Second)
		hang = true
		if took := scrape(0); took != 2*time.Second {
			t.Errorf("a scrape took %v", took)
		}
		if took := scrape(0); took != 0 {
			t.Errorf("the next scrape took %v", took)
		}
		time.Sleep(time.Minute)
		hang, takes = false, 0
		scrape(1)
	})
}

func gather(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" {
					name += " " + l.GetValue()
				}
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return got
}

type broker struct{ results []outbox.Result }

func (b broker) Publish(context.Context, []outbox.Message) []outbox.Result { return b.results }

func TestTimings(t *testing.T) {
	timings := telemetry.NewTimings()
	if problems, err := testutil.CollectAndLint(timings); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	fail := errors.New("no")
	b := broker{[]outbox.Result{{}, {Err: fail}, {Err: outbox.Unavailable(fail)}, {Err: outbox.Permanent(fail)}, {}, {}}}
	now := time.Now()
	p := timings.Publisher("r", b)
	if got := p.Publish(t.Context(), []outbox.Message{{CreatedAt: now}, {}, {}, {}, {CreatedAt: now, NotBefore: now}, {CreatedAt: now, Replay: 3}}); len(got) != 6 || got[1].Err == nil {
		t.Errorf("results %v", got)
	}
	got := gather(t, timings)
	for name, want := range map[string]float64{
		"postrider_publish_duration_seconds": 1, "postrider_delivery_duration_seconds": 1, "postrider_publish_results_total sent": 3,
		"postrider_publish_results_total retryable": 1, "postrider_publish_results_total unavailable": 1, "postrider_publish_results_total permanent": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

func TestSettlesAreTimed(t *testing.T) {
	timings, outer := telemetry.NewTimings(), memstore.New(memstore.Options{Shards: 1})
	store := timings.Store(outer)
	tx := outer.Begin()
	if err := outbox.NewWriter(outer).Enqueue(t.Context(), tx, outbox.Message{Topic: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	lease, err := store.Acquire(t.Context(), relay.Claim{Route: "r", Owner: "o", TTL: time.Minute, Topics: []string{"**"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := lease.Receive(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, outcomes := range [][]relay.Outcome{nil, {{Delivery: got[0], State: outbox.StateSent}}} {
		if err := lease.Settle(t.Context(), outcomes); err != nil {
			t.Fatal(err)
		}
	}
	if n := gather(t, timings)["postrider_settle_duration_seconds"]; n != 1 {
		t.Errorf("%v settles, want 1: renewing a lease is none", n)
	}
}
