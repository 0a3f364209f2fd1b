// Package telemetry shows a relay's figures to monitoring systems. The relay
// knows nothing of it: without it nothing is collected and nothing is spent.
package telemetry

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// NewCollector returns a Prometheus collector that calls stats, usually
// (*relay.Relay).Stats, at every scrape. stats must be safe for concurrent use.
//
// Metrics, all with the label route unless said otherwise:
//
//	postrider_received_messages_total            handed out by the store
//	postrider_outcomes_total                     by state: sent, retrying, failed, blocked, scheduled, expired, pending
//	postrider_unavailable_results_total          publish results that said the broker is away
//	postrider_fenced_calls_total                 stale writes refused because another relay has the lease
//	postrider_leases_lost_total                  leases that ended with an error
//	postrider_duplicates_possible_total          messages that may be published twice
//	postrider_in_flight_messages, _bytes         received and not settled
//	postrider_in_flight_limit_messages, _bytes   the most of them: the route's part of the limit
//	postrider_parked_pending_limit_messages      the most messages that are set aside for destinations that are away
//	postrider_rate_wait_seconds_total            how long publishing has waited for the route's rate
//	postrider_in_flight_oldest_age_seconds       how long the oldest has been without an outcome
//	postrider_shards_held                        shards whose lease this relay has
//	postrider_shards_quota                       shards that are this relay's part
//	postrider_shards_handed_over_total           shards given up to other relays, all settled
//	postrider_paused                             1 while an operator wants nothing published
//	postrider_destinations                       destinations that the route has published to lately
//	postrider_destinations_away                  those of them that are away
//	postrider_destination_away_seconds           by destination: for how long it has been away, of at most 20
//	postrider_destination_alarm                  by destination: 1 if an operator has to act
//	postrider_destination_parked_messages        by destination: messages that wait for it in the store
//	postrider_reading_stopped_seconds            how long the route has read nothing because too much waits for destinations that are away
//	postrider_shards_failing                     shards that stand still because of the store
//	postrider_breaker_open                       1 while a destination is away
//	postrider_breaker_open_seconds               for how long
//	postrider_alarm                              1 if an operator has to act
//	postrider_last_error_timestamp_seconds       when the last error was; absent without one
//	postrider_store_failures_total               (no label) times the store could not be asked for a lease
//	postrider_cleaned_messages_total             (label from: log or parked) old messages that this relay has deleted
//	postrider_clean_failures_total               (no label) times that they could not be deleted
//	postrider_relays                             (no label) relays at work on the store, as last seen; absent if unknown
func NewCollector(stats func() relay.Stats) prometheus.Collector { return &collector{stats} }

type collector struct{ stats func() relay.Stats }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("postrider_"+name, help, labels, nil)
}

var (
	received      = describe("received_messages_total", "Messages handed out by the store.", "route")
	outcomes      = describe("outcomes_total", "Outcomes of messages, by the state they went to.", "route", "state")
	unavailable   = describe("unavailable_results_total", "Publish results that said the broker is away; they spend no attempt.", "route")
	fenced        = describe("fenced_calls_total", "Stale writes refused because another relay had taken the lease.", "route")
	leasesLost    = describe("leases_lost_total", "Leases that ended with an error.", "route")
	duplicates    = describe("duplicates_possible_total", "Messages that may have been published without a record of it.", "route")
	inFlight      = describe("in_flight_messages", "Messages received and not settled yet.", "route")
	inFlightBytes = describe("in_flight_bytes", "Bytes of the messages received and not settled yet.", "route")
	limitMessages = describe("in_flight_limit_messages", "The most messages that the route has in flight.", "route")
	limitBytes    = describe("in_flight_limit_bytes", "The most bytes that the route has in flight.", "route")
	limitPending  = describe("parked_pending_limit_messages", "The most messages of the route that are set aside for destinations that are away.", "route")
	rateWait      = describe("rate_wait_seconds_total", "How long publishing has waited for the route's rate, over all calls.", "route")
	cleaned       = describe("cleaned_messages_total", "Old messages that this relay has deleted from the log, and of those that were parked.", "from")
	cleanFailures = describe("clean_failures_total", "Times that old messages could not be deleted.")
	oldest        = describe("in_flight_oldest_age_seconds", "How long the oldest message received has been without an outcome.", "route")
	shardsHeld    = describe("shards_held", "Shards whose lease this relay holds.", "route")
	shardsFailing = describe("shards_failing", "Shards whose messages stand still because the store answers with an error.", "route")
	quota         = describe("shards_quota", "Shards that are this relay's part.", "route")
	handedOver    = describe("shards_handed_over_total", "Shards that were given up to other relays, all settled.", "route")
	paused        = describe("paused", "1 while an operator wants nothing published, as this relay last saw.", "route")
	breakerOpen   = describe("breaker_open", "1 while a destination is away.", "route")
	breakerTime   = describe("breaker_open_seconds", "How long a destination has been away; 0 if none is.", "route")
	destinations  = describe("destinations", "Destinations that the route has published to lately.", "route")
	away          = describe("destinations_away", "Destinations of the route that are away.", "route")
	awayTime      = describe("destination_away_seconds", "How long the destination has been away; 0 if it is only slow. At most 20 of a route.", "route", "destination")
	awayAlarm     = describe("destination_alarm", "1 if an operator has to act before messages can go to the destination.", "route", "destination")
	awayParked    = describe("destination_parked_messages", "Messages that wait in the store for the destination, as far as this relay has seen.", "route", "destination")
	readStopped   = describe("reading_stopped_seconds", "How long the route has read nothing because too many messages wait for destinations that are away.", "route")
	alarm         = describe("alarm", "1 if an operator has to act before messages can be published.", "route")
	lastError     = describe("last_error_timestamp_seconds", "When the last error was.", "route")
	storeFailures = describe("store_failures_total", "Times the store could not be asked for a lease.")
	relays        = describe("relays", "Relays at work on the store, this one included, as last seen.")
)

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{received, outcomes, unavailable, fenced, leasesLost, duplicates, inFlight,
		inFlightBytes, oldest, shardsHeld, quota, handedOver, paused, shardsFailing, breakerOpen, breakerTime, destinations, away,
		awayTime, awayAlarm, awayParked, readStopped, alarm, lastError, storeFailures, relays, limitMessages, limitBytes, limitPending, rateWait, cleaned, cleanFailures} {
		ch <- d
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	stats, now := c.stats(), time.Now()
	ch <- prometheus.MustNewConstMetric(storeFailures, prometheus.CounterValue, float64(stats.StoreFailures))
	ch <- prometheus.MustNewConstMetric(cleaned, prometheus.CounterValue, float64(stats.Clean.Log), "log")
	ch <- prometheus.MustNewConstMetric(cleaned, prometheus.CounterValue, float64(stats.Clean.Parked), "parked")
	ch <- prometheus.MustNewConstMetric(cleanFailures, prometheus.CounterValue, float64(stats.Clean.Failures))
	if stats.Members > 0 {
		ch <- prometheus.MustNewConstMetric(relays, prometheus.GaugeValue, float64(stats.Members))
	}
	for i := range stats.Routes {
		collectRoute(ch, &stats.Routes[i], now)
	}
}

func collectRoute(ch chan<- prometheus.Metric, r *relay.RouteStats, now time.Time) {
	counter := func(d *prometheus.Desc, value uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), valid(append([]string{r.Name}, labels...))...)
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, valid(append([]string{r.Name}, labels...))...)
	}
	ch <- prometheus.MustNewConstMetric(rateWait, prometheus.CounterValue, r.RateWait.Seconds(), valid([]string{r.Name})...)
	gauge(limitMessages, float64(r.Limits.InFlightMessages))
	gauge(limitBytes, float64(r.Limits.InFlightBytes))
	gauge(limitPending, float64(r.Limits.ParkedPending))
	counter(received, r.Received)
	counter(outcomes, r.Sent, string(outbox.StateSent))
	counter(outcomes, r.Retried, string(outbox.StateRetrying))
	counter(outcomes, r.Failed, string(outbox.StateFailed))
	counter(outcomes, r.Blocked, string(outbox.StateBlocked))
	counter(outcomes, r.Scheduled, string(outbox.StateScheduled))
	counter(outcomes, r.Expired, string(outbox.StateExpired))
	counter(outcomes, r.Pending, string(outbox.StatePending))
	counter(unavailable, r.Unavailable)
	counter(fenced, r.Fenced)
	counter(leasesLost, r.LeasesLost)
	counter(duplicates, r.DuplicatesPossible)
	gauge(inFlight, float64(r.InFlight))
	gauge(inFlightBytes, float64(r.InFlightBytes))
	gauge(oldest, age(r.OldestInFlight, now))
	gauge(shardsHeld, float64(r.ShardsHeld))
	gauge(quota, float64(r.Quota))
	counter(handedOver, r.HandedOver)
	gauge(paused, truth(r.Paused))
	gauge(shardsFailing, float64(len(r.ShardsFailing)))
	gauge(breakerOpen, truth(r.BreakerOpen))
	gauge(breakerTime, age(r.BreakerSince, now))
	gauge(destinations, float64(r.DestinationsKnown))
	gauge(away, float64(r.DestinationsAway))
	seen := make(map[string]bool, len(r.Destinations))
	for _, d := range r.Destinations {
		if seen[d.Name] { // long names are cut: the same name twice would spoil the scrape
			continue
		}
		seen[d.Name] = true
		gauge(awayTime, age(d.Since, now), d.Name)
		gauge(awayAlarm, truth(d.Alarm), d.Name)
		gauge(awayParked, float64(d.Parked), d.Name)
	}
	gauge(readStopped, age(r.ReadingStopped, now))
	gauge(alarm, truth(r.Alarm))
	if !r.LastErrorAt.IsZero() {
		gauge(lastError, float64(r.LastErrorAt.UnixNano())/1e9)
	}
}

// valid is a label's value: Prometheus refuses what is not UTF-8.
func valid(labels []string) []string {
	for i, l := range labels {
		labels[i] = strings.ToValidUTF8(l, "\uFFFD")
	}
	return labels
}

func age(since, now time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(now.Sub(since), 0).Seconds()
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
