package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait for something that must happen and whose speed
// is no promise.
const patience = 2 * time.Minute

// news tells waiters that something has changed.
type news struct {
	mu   sync.Mutex
	next chan struct{}
}

// wait returns a channel that the next tell closes.
func (n *news) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// await waits until missing returns nothing, asking again after each change,
// and now and then without one. It fails the test with what is still missing.
func await(t testing.TB, within time.Duration, changed *news, what string, missing func() string) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		change := changed.wait()
		still := missing()
		if still == "" {
			return
		}
		select {
		case <-change:
		case <-again.C:
		case <-deadline.C:
			t.Fatalf("%s: not within %v: %s", what, within, still)
		case <-t.Context().Done():
			t.Fatalf("%s: the test has ended: %s", what, still)
		}
	}
}

// unless is a condition for await: the text, or nothing once ok.
func unless(ok bool, format string, args ...any) string {
	if ok {
		return ""
	}
	return fmt.Sprintf(format, args...)
}
