package relay

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	retryInitial = 100 * time.Millisecond
	// retryMax, and a try that takes 5 s, let messages flow within 10 s after the
	// store is back.
	retryMax       = 4 * time.Second
	acquireTimeout = 30 * time.Second
)

// backoff is how long to wait after that many failures in a row.
func backoff(failures int) time.Duration {
	return jittered(min(retryInitial<<min(failures-1, 10), retryMax))
}

// storeGate keeps a store that is away from being hammered: as long as it
// fails, one caller at a time asks it, with growing waits between, however
// many routes and shards there are.
type storeGate struct {
	turn chan struct{} // of capacity one: held by who asks a failing store

	mu       sync.Mutex
	failures int // in a row
	until    time.Time
	total    uint64
}

// do calls f, which asks the store. ErrHeld is an answer too.
func (g *storeGate) do(ctx context.Context, f func() error) error {
	if g.away() {
		select {
		case g.turn <- struct{}{}:
			defer func() { <-g.turn }()
		case <-ctx.Done():
			return ctx.Err()
		}
		// Who had the turn before may have found it well again.
		g.mu.Lock()
		wait := time.Until(g.until)
		if g.failures == 0 {
			wait = 0
		}
		g.mu.Unlock()
		if wait > 0 && !pause(ctx, wait) {
			return ctx.Err()
		}
	}
	err := f()
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil || errors.Is(err, ErrHeld):
		g.failures = 0
	case ctx.Err() != nil: // says nothing about the store
	default:
		g.total++
		// Calls that ran at the same time and failed together count as one.
		if g.failures == 0 || !now.Before(g.until) {
			g.failures++
			g.until = now.Add(backoff(g.failures))
		}
	}
	return err
}

func (g *storeGate) away() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failures > 0
}

func (g *storeGate) count() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total
}
