package programs

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// News tells waiters that something has changed. The zero value is ready.
type News struct {
	mu   sync.Mutex
	next chan struct{}
}

// wait returns a channel that the next Tell closes.
func (n *News) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

// Tell tells all who wait.
func (n *News) Tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// Eventually waits until check returns nil, asking again after each piece of
// news, and now and then without one; news may be nil. After Patience it fails
// the test with what check returned last.
func Eventually(t testing.TB, what string, news *News, check func() error) {
	t.Helper()
	Within(t, Patience, what, news, check)
}

// Within is Eventually with a patience of its own.
func Within(t testing.TB, patience time.Duration, what string, news *News, check func() error) {
	t.Helper()
	if err := Wait(t.Context(), patience, news, check); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Wait is Within for goroutines that are not the test's own: it returns the
// error, which says why it gave up.
func Wait(ctx context.Context, patience time.Duration, news *News, check func() error) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		var change <-chan struct{}
		if news != nil {
			change = news.wait()
		}
		missing := check()
		if missing == nil {
			return nil
		}
		select {
		case <-change:
		case <-again.C:
		case <-deadline.C:
			return fmt.Errorf("not within %v: %w", patience, missing)
		case <-ctx.Done():
			return fmt.Errorf("the test has ended: %w", missing)
		}
	}
}

// Unless is a check for Eventually: an error with the text, or nil once ok.
func Unless(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
