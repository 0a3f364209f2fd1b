package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
)

// StoreConfig configures a collector of figures that are in the database.
type StoreConfig struct {
	// Status asks the store, as (*admin.Admin).Status does. Required.
	Status func(ctx context.Context, o admin.StatusOptions) (admin.Status, error)
	// MaxAge is for how long an answer, or the lack of one, is used again.
	// After an answer that took long it is at least ten times as long as that.
	// Default 5 s.
	MaxAge time.Duration
	// Timeout bounds one question. Default 2 s.
	Timeout time.Duration
	// CountUpTo bounds the counting, as in admin.StatusOptions. Default 10,000.
	CountUpTo int
}

// NewStoreCollector returns a Prometheus collector that asks the database how the
// routes stand: seldom, with a bounded question, and without ever holding a scrape
// up for longer than the time-out. Every relay shows the same figures; take the
// maximum over the relays. When the database does not answer they are absent, and
// postrider_store_up is 0.
//
// Metrics, with the label route unless said otherwise:
//
//	postrider_oldest_pending_age_seconds      how long the oldest message has waited for its first outcome; 0: none waits
//	postrider_pending_messages                about how many wait
//	postrider_parked_messages                 by state: retrying, blocked, scheduled, failed, expired, discarded
//	postrider_oldest_parked_age_seconds       by state: how long ago the oldest of them was enqueued; absent without one
//	postrider_route_paused                    1 if an operator paused it
//	postrider_route_orphaned                  1 if no relay serves it
//	postrider_unrouted_messages               (no label) recent messages whose topic no route takes
//	postrider_stored_bytes                    (no label) what the messages take on the disk, sent ones included; absent if the store does not tell
//	postrider_oldest_stored_age_seconds       (no label) how long ago the oldest message of the log was enqueued; 0: it is empty
//	postrider_store_up                        (no label) 1 if the database answered
func NewStoreCollector(cfg StoreConfig) prometheus.Collector {
	if cfg.MaxAge <= 0 {
		cfg.MaxAge = 5 * time.Second
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 2 * time.Second
	}
	if cfg.CountUpTo <= 0 {
		cfg.CountUpTo = 10_000
	}
	return &storeCollector{cfg: cfg}
}

type storeCollector struct {
	cfg StoreConfig

	mu     sync.Mutex
	next   time.Time // when to ask again
	status admin.Status
	err    error
}

var (
	oldestPending   = describe("oldest_pending_age_seconds", "How long the oldest message has waited for its first outcome; 0 if none waits. The same from every relay.", "route")
	pendingMessages = describe("pending_messages", "About how many messages wait for their first outcome. The same from every relay.", "route")
	parkedMessages  = describe("parked_messages", "Messages that wait or have ended otherwise than sent, by state; counted up to a bound in each shard. The same from every relay.", "route", "state")
	oldestParked    = describe("oldest_parked_age_seconds", "How long ago the oldest parked message of a state was enqueued. The same from every relay.", "route", "state")
	routePaused     = describe("route_paused", "1 if an operator paused the route. The same from every relay.", "route")
	routeOrphaned   = describe("route_orphaned", "1 if no relay serves the route. The same from every relay.", "route")
	unrouted        = describe("unrouted_messages", "Recent messages whose topic no route takes. The same from every relay.")
	storedBytes     = describe("stored_bytes", "What the messages take on the disk, sent ones included. The same from every relay.")
	oldestStored    = describe("oldest_stored_age_seconds", "How long ago the oldest message of the log was enqueued; 0 if it is empty. The same from every relay.")
	storeUp         = describe("store_up", "1 if the database answered when it was last asked how the routes stand.")
)

func (c *storeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{oldestPending, pendingMessages, parkedMessages, oldestParked, routePaused, routeOrphaned, unrouted, storedBytes, oldestStored, storeUp} {
		ch <- d
	}
}

// ask returns how the routes stand. Whoever comes while another asks waits for
// its answer.
func (c *storeCollector) ask() (admin.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	start := time.Now()
	if start.Before(c.next) {
		return c.status, c.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Timeout)
	defer cancel()
	c.status, c.err = c.cfg.Status(ctx, admin.StatusOptions{CountUpTo: c.cfg.CountUpTo})
	end := time.Now()
	c.next = end.Add(max(c.cfg.MaxAge, 10*end.Sub(start)))
	return c.status, c.err
}

func (c *storeCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, valid(labels)...)
	}
	status, err := c.ask()
	gauge(storeUp, truth(err == nil))
	if err != nil {
		return
	}
	var strays int64
	for _, u := range status.Unrouted {
		strays += u.Messages
	}
	gauge(unrouted, float64(strays))
	if status.Stored.Bytes > 0 {
		gauge(storedBytes, float64(status.Stored.Bytes))
	}
	gauge(oldestStored, admin.Age(status.Stored.Oldest, status.At).Seconds())
	for i := range status.Routes {
		r := &status.Routes[i]
		gauge(oldestPending, admin.Age(r.OldestPending, status.At).Seconds(), r.Name)
		gauge(pendingMessages, float64(r.Pending), r.Name)
		gauge(routePaused, truth(r.Paused), r.Name)
		gauge(routeOrphaned, truth(r.Orphaned && !r.Paused), r.Name)
		for _, state := range []outbox.State{
			outbox.StateRetrying, outbox.StateBlocked, outbox.StateScheduled, outbox.StateFailed, outbox.StateExpired, outbox.StateDiscarded,
		} {
			n, _ := r.Count(state)
			gauge(parkedMessages, float64(n), r.Name, string(state))
		}
		for _, parked := range r.Parked {
			gauge(oldestParked, admin.Age(parked.Oldest, status.At).Seconds(), r.Name, string(parked.State))
		}
	}
}
