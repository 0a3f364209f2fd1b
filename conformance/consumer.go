package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/outbox"
)

// Consumer is the suite for implementations of inbox.Consumer: a message is
// acknowledged after its handler succeeded and not before, comes again
// otherwise, and a stop finishes what runs and loses nothing.
func Consumer(t *testing.T, factory BrokerFactory) {
	runBrokerTests(t, factory, true, []brokerTest{
		{"acknowledged only after success", consumeAcknowledges},
		{"a failed message comes again", consumeRetries},
		{"a panic is a failure", consumePanics},
		{"a poisonous message does not stop the rest", consumePoison},
		{"an undecodable message does not stop the rest", consumeUndecodable},
		{"messages are handled at the same time", consumeParallel},
		{"consumers share the queue", consumeShared},
		{"a slow handler keeps its message", consumeSlowly},
		{"a stop finishes what runs", consumeStop},
		{"a stop while nothing happens", consumeIdleStop},
		{"order per key", consumeOrder},
	})
}

func consumeAcknowledges(r *brokerRig) {
	release := make(chan struct{})
	started := make(chan struct{})
	c := r.consume(func(context.Context, outbox.Message) error {
		close(started)
		<-release
		return nil
	})
	m := r.texts(1)
	r.send(m...)
	<-started
	if n := r.left(); n != 1 {
		r.t.Errorf("%d messages are left while one is being handled, want 1", n)
	}
	close(release)
	r.nothingLeft()
	exactlyOnce(r.t, m, c)
}

func consumeRetries(r *brokerRig) {
	var mu sync.Mutex
	tries := map[uuid.UUID]int{}
	c := r.consume(func(_ context.Context, m outbox.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if tries[m.ID]++; tries[m.ID] < 3 && string(m.Payload) == `{"n":1}` {
			return errors.New("not yet")
		}
		return nil
	})
	msgs := r.texts(3)
	r.send(msgs...)
	r.nothingLeft()
	want := map[uuid.UUID]int{msgs[0].ID: 1, msgs[1].ID: 3, msgs[2].ID: 1}
	for id, n := range c.times() {
		if n != want[id] {
			r.t.Errorf("a message was handled %d times, want %d", n, want[id])
		}
	}
}

func consumePanics(r *brokerRig) {
	var panicked atomic.Bool
	c := r.consume(func(context.Context, outbox.Message) error {
		if panicked.CompareAndSwap(false, true) {
			panic("a fault of the handler")
		}
		return nil
	})
	m := r.texts(1)
	r.send(m...)
	r.nothingLeft()
	if n := c.times()[m[0].ID]; n != 2 {
		r.t.Errorf("handled %d times, want 2", n)
	}
}

func consumePoison(r *brokerRig) {
	msgs := r.texts(40)
	poison := msgs[0].ID
	c := r.consume(func(_ context.Context, m outbox.Message) error {
		if m.ID == poison {
			return outbox.Permanent(errors.New("poison"))
		}
		return nil
	})
	r.send(msgs...)
	r.until("all others are handled", func() bool { return len(c.times()) == 40 && r.left() <= 1 })
	c.end()
	for id, n := range c.times() {
		if id != poison && n != 1 {
			r.t.Errorf("a good message was handled %d times", n)
		}
	}
}

func consumeUndecodable(r *brokerRig) {
	if r.Poison == nil {
		return // it has none
	}
	if err := r.Poison(r.t.Context()); err != nil {
		r.t.Fatalf("put something undecodable into the queue: %v", err)
	}
	msgs := r.texts(40)
	r.send(msgs...)
	c := r.consume(nil)
	r.until("all others are handled", func() bool { return c.count() == 40 && r.left() <= 1 })
	c.end()
	exactlyOnce(r.t, msgs, c)
}

func consumeParallel(r *brokerRig) {
	var together sync.WaitGroup
	together.Add(5)
	c := r.consume(func(context.Context, outbox.Message) error {
		together.Done()
		together.Wait()
		return nil
	})
	msgs := r.texts(5)
	r.send(msgs...)
	r.nothingLeft()
	exactlyOnce(r.t, msgs, c)
}

func consumeShared(r *brokerRig) {
	one, other := r.consume(nil), r.consume(nil)
	msgs := r.texts(200)
	r.send(msgs...)
	r.nothingLeft()
	exactlyOnce(r.t, msgs, one, other)
}

func consumeSlowly(r *brokerRig) {
	if r.Hidden == 0 {
		return // nothing is ever taken away
	}
	var ended atomic.Int32
	slow := func(ctx context.Context, _ outbox.Message) error {
		timer := time.NewTimer(r.Hidden*2 + r.Hidden/2)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		ended.Add(1)
		return nil
	}
	msgs := r.texts(12)
	r.send(msgs...)
	one, other := r.consume(slow), r.consume(slow)
	r.until("all are handled", func() bool { return int(ended.Load()) >= len(msgs) })
	r.nothingLeft()
	exactlyOnce(r.t, msgs, one, other)
}

func consumeStop(r *brokerRig) {
	release := make(chan struct{})
	var cancelled atomic.Bool
	first := r.consume(func(ctx context.Context, _ outbox.Message) error {
		<-release
		cancelled.Store(cancelled.Load() || ctx.Err() != nil)
		return nil
	})
	msgs := r.texts(60)
	r.send(msgs...)
	r.until("a handler runs", func() bool { return first.count() > 0 })
	first.stop()
	select {
	case err := <-first.done:
		r.t.Fatalf("the consumer ended (%v) while a handler was running", err)
	case <-time.After(200 * time.Millisecond):
	}
	close(release)
	first.end()
	if cancelled.Load() {
		r.t.Error("the stop cancelled the context of a running handler")
	}
	handled := first.count()
	if left := r.left(); left != len(msgs)-handled {
		r.t.Errorf("%d of %d messages were handled, and %d are left", handled, len(msgs), left)
	}
	second := r.consume(nil)
	r.nothingLeft()
	exactlyOnce(r.t, msgs, first, second)
}

func consumeIdleStop(r *brokerRig) {
	c := r.consume(nil)
	m := r.texts(1)
	r.send(m...)
	r.nothingLeft()
	started := time.Now()
	c.end()
	if took := time.Since(started); took > 10*time.Second {
		r.t.Errorf("an idle consumer took %v to stop", took)
	}
	exactlyOnce(r.t, m, c)
}

func consumeOrder(r *brokerRig) {
	if !r.OrderPerKey {
		return // it promises none
	}
	const keys, each = 4, 12
	msgs := r.texts(keys * each)
	for i := range msgs {
		msgs[i].Key = fmt.Sprintf("key %d", i%keys)
		msgs[i].Payload = fmt.Appendf(nil, `%d`, i/keys)
	}
	r.send(msgs...)
	var mu sync.Mutex
	busy, next := map[string]bool{}, map[string]int{}
	c := r.consume(func(_ context.Context, m outbox.Message) error {
		mu.Lock()
		if busy[m.Key] {
			r.t.Errorf("%s: two messages were handled at the same time", m.Key)
		}
		if string(m.Payload) != fmt.Sprint(next[m.Key]) {
			r.t.Errorf("%s: number %s came when %d was due", m.Key, m.Payload, next[m.Key])
		}
		busy[m.Key] = true
		next[m.Key]++
		mu.Unlock()
		runtime.Gosched() // so that the others may come
		mu.Lock()
		busy[m.Key] = false
		mu.Unlock()
		return nil
	})
	r.nothingLeft()
	exactlyOnce(r.t, msgs, c)
}
