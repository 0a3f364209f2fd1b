package telemetry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/telemetry"
)

func TestCollector(t *testing.T) {
	stats := relay.Stats{StoreFailures: 3, Routes: []relay.RouteStats{
		{Name: "orders", Sent: 7, Failed: 1, InFlight: 5, BreakerOpen: true, BreakerSince: time.Now().Add(-time.Minute), LastErrorAt: time.Unix(1700000000, 0),
			ShardsFailing: []relay.ShardFailure{{Shard: 2, Error: "no"}}},
		{Name: "mail", Received: 2},
	}}
	c := telemetry.NewCollector(func() relay.Stats { return stats })
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	err := testutil.CollectAndCompare(c, strings.NewReader(`
# HELP postrider_outcomes_total Outcomes of messages, by the state they went to.
# TYPE postrider_outcomes_total counter
postrider_outcomes_total{route="mail",state="blocked"} 0
postrider_outcomes_total{route="mail",state="expired"} 0
postrider_outcomes_total{route="mail",state="failed"} 0
postrider_outcomes_total{route="mail",state="pending"} 0
postrider_outcomes_total{route="mail",state="retrying"} 0
postrider_outcomes_total{route="mail",state="scheduled"} 0
postrider_outcomes_total{route="mail",state="sent"} 0
postrider_outcomes_total{route="orders",state="blocked"} 0
postrider_outcomes_total{route="orders",state="expired"} 0
postrider_outcomes_total{route="orders",state="failed"} 1
postrider_outcomes_total{route="orders",state="pending"} 0
postrider_outcomes_total{route="orders",state="retrying"} 0
postrider_outcomes_total{route="orders",state="scheduled"} 0
postrider_outcomes_total{route="orders",state="sent"} 7
# HELP postrider_breaker_open 1 while a destination is away.
# TYPE postrider_breaker_open gauge
postrider_breaker_open{route="mail"} 0
postrider_breaker_open{route="orders"} 1
# HELP postrider_last_error_timestamp_seconds When the last error was.
# TYPE postrider_last_error_timestamp_seconds gauge
postrider_last_error_timestamp_seconds{route="orders"} 1.7e+09
# HELP postrider_shards_failing Shards whose messages stand still because the store answers with an error.
# TYPE postrider_shards_failing gauge
postrider_shards_failing{route="mail"} 0
postrider_shards_failing{route="orders"} 1
# HELP postrider_store_failures_total Times the store could not be asked for a lease.
# TYPE postrider_store_failures_total counter
postrider_store_failures_total 3
`), "postrider_outcomes_total", "postrider_breaker_open", "postrider_shards_failing", "postrider_last_error_timestamp_seconds", "postrider_store_failures_total")
	if err != nil {
		t.Error(err)
	}
	if err := prometheus.NewPedanticRegistry().Register(c); err != nil {
		t.Error(err)
	}
}

func ExampleNewCollector() {
	var r *relay.Relay // from relay.New
	registry := prometheus.NewRegistry()
	registry.MustRegister(telemetry.NewCollector(r.Stats))
}
