package relay

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/postrider/postrider/outbox"
)

// Defaults of a Config's fields.
const (
	DefaultLease            = 15 * time.Second
	DefaultInFlightMessages = 10_000
	DefaultInFlightBytes    = 64 << 20
	DefaultParkedPending    = 100_000
	DefaultConcurrency      = 8
	DefaultMaxAttempts      = 10
	DefaultRetryInitial     = time.Second
	DefaultRetryFactor      = 2.0
	DefaultRetryMax         = 5 * time.Minute
	DefaultRetryJitter      = 0.2
)

// Order is what a route promises about messages of one key.
type Order string

const (
	// OrderKey: first deliveries of a key keep the order of enqueueing. The default.
	OrderKey Order = "key"
	// OrderNone: messages overtake each other freely.
	OrderNone Order = "none"
)

// OnFailure is what a failed message means to the later ones of its key.
type OnFailure string

const (
	// Release lets the later ones go on. The default.
	Release OnFailure = "release"
	// Hold keeps them blocked until an operator acts.
	Hold OnFailure = "hold"
)

// Config is what New needs. Store and at least one Route are required;
// everything else has a default, which its zero value stands for.
type Config struct {
	// Store is where the messages rest. It stays the caller's.
	Store Store
	// Routes say which topics go where. Each reads the log on its own.
	Routes []Route
	// Lease is how long a shard stays this relay's without a renewal, and so
	// how long a crash delays its messages. Default DefaultLease.
	Lease time.Duration
	// Owner names this relay to other relays and to people. It must be unique
	// among the running ones. Default: host name, process id, a random part.
	Owner string
	// Drain is how long Run may take, after its context ended, to let running
	// publishes finish and to record them. Default: the longest PublishTimeout
	// plus 5 s.
	Drain time.Duration
	// Logger gets what an operator should know. Default slog.Default.
	Logger *slog.Logger
	// Limits bound what the relay holds in memory.
	Limits Limits
	// Retention says when the relay deletes old messages, where the store is a
	// Cleaner.
	Retention Retention
}

// Limits bound the messages in hand, received and not settled yet, and those
// that are parked because of a destination. Every route gets an equal part of
// them, so that one cannot starve the others.
type Limits struct {
	// InFlightMessages, over all routes. A route with several destinations may
	// have up to four times its part, within InFlightBytes, while calls to a slow
	// one run and messages of their keys wait for that. Default
	// DefaultInFlightMessages.
	InFlightMessages int
	// InFlightBytes, over all routes, of payloads, headers and keys. When
	// messages suddenly grow it can be exceeded by one page for each shard,
	// which a store ends at about PageBytes. Default DefaultInFlightBytes.
	InFlightBytes int64
	// ParkedPending, over all routes, bounds the messages that are parked as
	// pending, because one of a route's several destinations is away or cannot
	// keep up, and those of their keys behind them. A route that reaches its
	// part reads no more until that destination is back, which delays the
	// others too: Stats and the log tell. Default DefaultParkedPending.
	ParkedPending int
}

// Route sends the messages of some topics to one publisher.
type Route struct {
	// Name is unique and stable: the route's cursor in the store belongs to it.
	Name string
	// Topics are patterns, as Matcher takes them. At least one.
	Topics []string
	// Publisher sends the messages. Required.
	Publisher outbox.Publisher
	// Start says where a route begins that has no cursor yet. Default
	// StartBeginning.
	Start Start
	// Order is OrderKey by default.
	Order Order
	// OnFailure is Release by default.
	OnFailure OnFailure
	// Retry is for messages that the broker refused this time.
	Retry RetryPolicy
	// Rate is the most messages per second that this relay publishes on the
	// route. 0: unlimited.
	Rate float64
	// Concurrency is how many Publish calls run at the same time, for each of
	// the destinations that the publisher tells apart; over all of those at most
	// 256, or eight times as many if that is more. Default DefaultConcurrency.
	Concurrency int
	// PublishTimeout bounds one Publish call; must be shorter than the lease.
	// Default: half of the lease.
	PublishTimeout time.Duration
}

// RetryPolicy is exponential backoff: attempt n is followed by a wait of
// Initial * Factor^(n-1), at most Max, give or take Jitter of it.
type RetryPolicy struct {
	// MaxAttempts after which a message has failed. Default DefaultMaxAttempts.
	MaxAttempts int
	// Initial wait. Default DefaultRetryInitial.
	Initial time.Duration
	// Factor, at least 1. Default DefaultRetryFactor.
	Factor float64
	// Max wait. Default DefaultRetryMax, or Initial if that is longer.
	Max time.Duration
	// Jitter is the part of the wait, up to 1, that chance may add or take
	// away. Default DefaultRetryJitter; negative: none.
	Jitter float64
}

// wait is how long to wait after the given attempt, the first being 1; chance
// is from [0, 1).
func (p RetryPolicy) wait(attempt int, chance float64) time.Duration {
	d := float64(p.Initial) * math.Pow(p.Factor, float64(attempt-1))
	d = min(d, float64(p.Max))
	if p.Jitter > 0 {
		d *= 1 + p.Jitter*(2*chance-1)
	}
	return time.Duration(d)
}

// withDefaults returns the configuration with every default filled in, or all
// that is wrong with it.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Store == nil {
		wrong("no store")
	}
	if len(c.Routes) == 0 {
		wrong("no routes: nothing would be published")
	}
	switch {
	case c.Lease < 0:
		wrong("lease %v is negative", c.Lease)
		c.Lease = DefaultLease
	case c.Lease == 0:
		c.Lease = DefaultLease
	}
	if c.Drain < 0 {
		wrong("drain %v is negative", c.Drain)
	}
	if c.Limits.InFlightMessages < 0 || c.Limits.InFlightBytes < 0 || c.Limits.ParkedPending < 0 {
		wrong("limits: %d messages and %d bytes in flight, %d parked: none may be negative",
			c.Limits.InFlightMessages, c.Limits.InFlightBytes, c.Limits.ParkedPending)
	}
	orDefault(&c.Limits.InFlightMessages, DefaultInFlightMessages)
	orDefault(&c.Limits.InFlightBytes, DefaultInFlightBytes)
	orDefault(&c.Limits.ParkedPending, DefaultParkedPending)
	orDefault(&c.Retention.Sent, DefaultRetentionSent)
	orDefault(&c.Retention.Failed, Keep)
	if c.Retention.Sent < Keep || c.Retention.Failed < Keep {
		wrong("retention: %v for sent and %v for failed messages: none may be negative", c.Retention.Sent, c.Retention.Failed)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Owner == "" {
		host, _ := os.Hostname() // a name for people; the random part makes it unique
		c.Owner = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:8])
	}
	routes := make([]Route, len(c.Routes))
	names := make(map[string]bool)
	longest := time.Duration(0)
	for i, r := range c.Routes {
		if err := r.setDefaults(c.Lease); err != nil {
			wrong("route %q: %w", r.Name, err)
		}
		if names[r.Name] {
			wrong("route %q: its name is taken by another one: their cursors would be the same", r.Name)
		}
		names[r.Name] = true
		longest = max(longest, r.PublishTimeout)
		routes[i] = r
	}
	c.Routes = routes
	orDefault(&c.Drain, longest+5*time.Second)
	if err := errors.Join(errs...); err != nil {
		return Config{}, fmt.Errorf("relay: configuration: %w", err)
	}
	return c, nil
}

func (r *Route) setDefaults(lease time.Duration) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if r.Name == "" {
		wrong("it has no name")
	}
	if _, err := Matcher(r.Topics); err != nil {
		errs = append(errs, err)
	}
	if r.Publisher == nil {
		wrong("it has no publisher")
	}
	orDefault(&r.Start, StartBeginning)
	if r.Start != StartBeginning && r.Start != StartNow {
		wrong("start %q is neither %q nor %q", r.Start, StartBeginning, StartNow)
	}
	orDefault(&r.Order, OrderKey)
	if r.Order != OrderKey && r.Order != OrderNone {
		wrong("order %q is neither %q nor %q", r.Order, OrderKey, OrderNone)
	}
	orDefault(&r.OnFailure, Release)
	if r.OnFailure != Release && r.OnFailure != Hold {
		wrong("on_failure %q is neither %q nor %q", r.OnFailure, Release, Hold)
	}
	if r.Rate < 0 || math.IsNaN(r.Rate) {
		wrong("rate %v is negative", r.Rate)
	}
	if r.Concurrency < 0 {
		wrong("concurrency %d is negative", r.Concurrency)
	}
	orDefault(&r.Concurrency, DefaultConcurrency)
	orDefault(&r.PublishTimeout, lease/2)
	if r.PublishTimeout < 0 {
		wrong("publish timeout %v is negative", r.PublishTimeout)
	} else if r.PublishTimeout > lease-leaseMargin(lease) {
		wrong("publish timeout %v is too long for a lease of %v: another relay could publish the same messages meanwhile; at most %v fits",
			r.PublishTimeout, lease, lease-leaseMargin(lease))
	}
	if err := r.Retry.setDefaults(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (p *RetryPolicy) setDefaults() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("retry: "+format, args...)) }
	if p.MaxAttempts < 0 {
		wrong("%d attempts at most is negative", p.MaxAttempts)
	}
	orDefault(&p.MaxAttempts, DefaultMaxAttempts)
	if p.Initial < 0 {
		wrong("initial wait %v is negative", p.Initial)
	}
	orDefault(&p.Initial, DefaultRetryInitial)
	orDefault(&p.Max, max(DefaultRetryMax, p.Initial))
	if p.Max < p.Initial {
		wrong("the longest wait, %v, is shorter than the first, %v", p.Max, p.Initial)
	}
	orDefault(&p.Factor, DefaultRetryFactor)
	if !(p.Factor >= 1) { // NaN too
		wrong("factor %v is below 1: waits would become shorter", p.Factor)
	}
	orDefault(&p.Jitter, DefaultRetryJitter)
	if !(p.Jitter <= 1) {
		wrong("jitter %v is above 1: waits could be negative", p.Jitter)
	}
	return errors.Join(errs...)
}

// leaseMargin is the part of a lease that is left unused before its end, for
// clocks that run apart and a publish that is slow to notice its end.
func leaseMargin(lease time.Duration) time.Duration { return min(lease/10, time.Second) }

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
