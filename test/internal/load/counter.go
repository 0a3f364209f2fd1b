// Package load enqueues numbered messages at a rate, and counts them where they
// arrive.
package load

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
)

// Report is what a Counter has seen.
type Report struct {
	// Got counts messages, each once; Doubles are further deliveries, and
	// Disorder first ones after a later message of their key.
	Got, Doubles, Disorder int
	// Wrong are messages that are none of this package.
	Wrong int
	// Delays, from before the commit to the publishing, of what came since the
	// last report: the median, 99 of 100, the longest.
	P50, P99, Worst time.Duration
	Samples         int
	// At is when the report was made.
	At time.Time

	// Of the relay.
	Held          int // shards
	Fenced        uint64
	Cleaned       uint64
	CleanFailures uint64
	CleanError    string
	Last          bool // nothing comes after it
}

// Counter is an outbox.Publisher.
type Counter struct {
	retry int

	mu     sync.Mutex
	dead   bool
	seen   map[string][]uint64 // by key, a bit for each number
	last   map[string]int
	tried  map[string]map[int]bool
	report Report
	delays []time.Duration
}

// NewCounter returns a Counter that refuses every retry-th message of a key
// once; 0: none.
func NewCounter(retry int) *Counter {
	return &Counter{retry: retry, seen: map[string][]uint64{}, last: map[string]int{}, tried: map[string]map[int]bool{}}
}

// SetDead has the broker go away, or come back.
func (c *Counter) SetDead(dead bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = dead
}

var (
	errDead    = outbox.Unavailable(errors.New("the counter is away"))
	errRefused = errors.New("the counter refuses this one once")
)

// Publish counts.
func (c *Counter) Publish(_ context.Context, msgs []outbox.Message) []outbox.Result {
	now := time.Now()
	results := make([]outbox.Result, len(msgs))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range msgs {
		switch {
		case c.dead:
			results[i].Err = errDead
		case !c.count(&msgs[i], now):
			results[i].Err = errRefused
		}
	}
	return results
}

// count reports whether the message is taken.
func (c *Counter) count(m *outbox.Message, now time.Time) bool {
	number, enqueued, err := decode(m.Payload)
	if err != nil {
		c.report.Wrong++
		return true
	}
	if c.retry > 0 && number%c.retry == 0 {
		tried := c.tried[m.Key]
		if tried == nil {
			tried = map[int]bool{}
			c.tried[m.Key] = tried
		}
		if !tried[number] {
			tried[number] = true
			return false
		}
	}
	seen := c.seen[m.Key]
	for len(seen) <= number/64 {
		seen = append(seen, 0)
	}
	c.seen[m.Key] = seen
	if bit := uint64(1) << (number % 64); seen[number/64]&bit != 0 {
		c.report.Doubles++
		return true
	} else {
		seen[number/64] |= bit
	}
	if number < c.last[m.Key] {
		c.report.Disorder++
	}
	c.last[m.Key] = number
	c.report.Got++
	if !enqueued.IsZero() {
		c.delays = append(c.delays, now.Sub(enqueued))
	}
	return true
}

// Seen reports whether number n of a key has come.
func (c *Counter) Seen(key string, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen[key]
	return n/64 < len(seen) && seen[n/64]&(1<<(n%64)) != 0
}

// Report returns what was seen, and begins a new set of delays.
func (c *Counter) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.report
	r.At = time.Now()
	if r.Samples = len(c.delays); r.Samples > 0 {
		slices.Sort(c.delays)
		r.P50, r.P99, r.Worst = c.delays[len(c.delays)/2], c.delays[len(c.delays)*99/100], c.delays[len(c.delays)-1]
	}
	c.delays = c.delays[:0]
	return r
}
