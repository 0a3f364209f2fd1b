package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// Timings measures a relay's calls to its brokers and its store, by standing
// between them. It is a Prometheus collector:
//
//	postrider_publish_duration_seconds     histogram by route: one call of Publish, of one or more messages
//	postrider_publish_results_total        attempts by route and result: sent, retryable, permanent, unavailable
//	postrider_delivery_duration_seconds    histogram by route: from enqueueing, by the database's clock, to the broker's acknowledgement, by this machine's; not of scheduled and replayed ones
//	postrider_settle_duration_seconds      histogram by route: one transaction that records outcomes
type Timings struct {
	publish, delivery, settle *prometheus.HistogramVec
	results                   *prometheus.CounterVec
}

// NewTimings returns one to be registered.
func NewTimings() *Timings {
	histogram := func(name, help string, first float64, n int) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "postrider", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(first, 2.5, n),
		}, []string{"route"})
	}
	return &Timings{
		publish:  histogram("publish_duration_seconds", "How long a call to the broker took.", 0.0005, 12),
		delivery: histogram("delivery_duration_seconds", "From enqueueing to the broker's acknowledgement, but for scheduled and replayed messages.", 0.001, 14),
		settle:   histogram("settle_duration_seconds", "How long a transaction took that records outcomes.", 0.0005, 12),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "postrider", Name: "publish_results_total", Help: "Results of publishing one message, by what the broker said.",
		}, []string{"route", "result"}),
	}
}

// Describe is for Prometheus.
func (t *Timings) Describe(ch chan<- *prometheus.Desc) {
	t.publish.Describe(ch)
	t.delivery.Describe(ch)
	t.settle.Describe(ch)
	t.results.Describe(ch)
}

// Collect is for Prometheus.
func (t *Timings) Collect(ch chan<- prometheus.Metric) {
	t.publish.Collect(ch)
	t.delivery.Collect(ch)
	t.settle.Collect(ch)
	t.results.Collect(ch)
}

// Publisher returns p, measured. The relay finds what else p can do.
func (t *Timings) Publisher(route string, p outbox.Publisher) outbox.Publisher {
	m := &publisher{Publisher: p, duration: t.publish.WithLabelValues(route), delivery: t.delivery.WithLabelValues(route)}
	for i, name := range resultNames {
		m.results[i] = t.results.WithLabelValues(route, name)
	}
	return m
}

// The order of results: sent, and then the classes of errors.
var resultNames = [...]string{"sent", "retryable", "unavailable", "permanent"}

type publisher struct {
	outbox.Publisher
	duration, delivery prometheus.Observer
	results            [len(resultNames)]prometheus.Counter
}

// Unwrap lets the relay find what else the publisher can do.
func (p *publisher) Unwrap() outbox.Publisher { return p.Publisher }

func (p *publisher) Publish(ctx context.Context, msgs []outbox.Message) []outbox.Result {
	start := time.Now()
	results := p.Publisher.Publish(ctx, msgs)
	end := time.Now()
	p.duration.Observe(end.Sub(start).Seconds())
	var counts [len(resultNames)]int
	for i := range results {
		if results[i].Err != nil {
			counts[resultOf(results[i].Err)]++
			continue
		}
		counts[0]++
		if i < len(msgs) && !msgs[i].CreatedAt.IsZero() && msgs[i].NotBefore.IsZero() && msgs[i].Replay == 0 {
			p.delivery.Observe(max(end.Sub(msgs[i].CreatedAt), 0).Seconds())
		}
	}
	for i, n := range counts {
		if n > 0 {
			p.results[i].Add(float64(n))
		}
	}
	return results
}

func resultOf(err error) int {
	switch outbox.ClassOf(err) {
	case outbox.ClassUnavailable:
		return 2
	case outbox.ClassPermanent:
		return 3
	default:
		return 1
	}
}

// Store returns s, measured. The relay finds what else s can do.
func (t *Timings) Store(s relay.Store) relay.Store { return &store{s, t} }

type store struct {
	relay.Store
	timings *Timings
}

// Unwrap lets the relay find what else the store can do.
func (s *store) Unwrap() relay.Store { return s.Store }

func (s *store) Acquire(ctx context.Context, claim relay.Claim) (relay.Lease, error) {
	l, err := s.Store.Acquire(ctx, claim)
	if err != nil {
		return nil, err
	}
	return &lease{l, s.timings.settle.WithLabelValues(claim.Route)}, nil
}

type lease struct {
	relay.Lease
	duration prometheus.Observer
}

// Unwrap lets the relay find what else the lease can do.
func (l *lease) Unwrap() relay.Lease { return l.Lease }

func (l *lease) Settle(ctx context.Context, outcomes []relay.Outcome) error {
	start := time.Now()
	err := l.Lease.Settle(ctx, outcomes)
	if err == nil && len(outcomes) > 0 {
		l.duration.Observe(time.Since(start).Seconds())
	}
	return err
}
