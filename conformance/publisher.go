package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/outbox"
)

// Publisher is the suite for implementations of outbox.Publisher: bytes arrive
// as they were, every message has its own answer, what the broker cannot take
// is permanent and harms no neighbour, and a context's end is heeded.
func Publisher(t *testing.T, factory BrokerFactory) {
	runBrokerTests(t, factory, false, []brokerTest{
		{"any messages arrive as they were", publishAny},
		{"awkward messages arrive as they were", publishAwkward},
		{"one result for each message", publishCounts},
		{"a refused message harms no neighbour", publishRefused},
		{"an oversized message fails alone", publishOversized},
		{"large messages go in as many requests as they need", publishLarge},
		{"order per key", publishOrder},
		{"concurrent use", publishConcurrently},
		{"a context that has ended", publishEnded},
		{"a broker that hangs", publishHanging},
	})
}

func publishAny(r *brokerRig) {
	c := r.consume(nil)
	want := map[uuid.UUID]outbox.Message{}
	generator := travelling()
	properties(r.t, 40, 1000, func(t *rapid.T) {
		msgs := rapid.SliceOfN(generator, 1, 5).Draw(t, "messages")
		r.arrive(t, c, msgs, want)
	})
	r.onlyThese(c, want)
}

func publishAwkward(r *brokerRig) {
	c := r.consume(nil)
	want := map[uuid.UUID]outbox.Message{}
	for _, m := range awkward() {
		m.NotBefore, m.Expires = time.Time{}, time.Time{}
		r.arrive(r.t, c, []outbox.Message{m}, want)
	}
	r.onlyThese(c, want)
}

// arrive publishes the messages, checks each answer and waits for those taken.
func (r *brokerRig) arrive(t failer, c *running, msgs []outbox.Message, want map[uuid.UUID]outbox.Message) {
	t.Helper()
	for i := range msgs {
		if msgs[i].ID == uuid.Nil {
			msgs[i].ID = newID(t)
		}
	}
	for i, result := range r.publish(t, context.Background(), msgs) {
		m := msgs[i]
		if r.Refuses != nil && r.Refuses(m) || r.MaxBytes > 0 && len(m.Payload) > r.MaxBytes {
			permanent(t, result.Err, m)
			continue
		}
		if result.Err != nil {
			t.Fatalf("message %d, %+v: %v", i, m, result.Err)
		}
		want[m.ID] = m
		var got outbox.Message
		deadline := time.Now().Add(brokerPatience)
		for arrived := false; !arrived; got, arrived = c.find(m.ID) {
			if time.Now().After(deadline) {
				t.Fatalf("message %d was acknowledged but did not arrive within %v: %+v", i, brokerPatience, m)
			}
			time.Sleep(time.Millisecond)
		}
		if diff := differArrived(m, got); diff != "" {
			t.Fatalf("a message came changed (-want +got):\n%s", diff)
		}
	}
}

// permanent checks that the refusal is final and says something.
func permanent(t failer, err error, m outbox.Message) {
	t.Helper()
	if err == nil {
		t.Fatalf("a message that the broker cannot take was acknowledged: %+v", m)
	}
	if outbox.ClassOf(err) != outbox.ClassPermanent {
		t.Fatalf("a message that the broker cannot take is %v, want permanent: %v", outbox.ClassOf(err), err)
	}
	if err.Error() == "" {
		t.Fatalf("the refusal has no text")
	}
}

// onlyThese checks that nothing arrived but what was acknowledged.
func (r *brokerRig) onlyThese(c *running, want map[uuid.UUID]outbox.Message) {
	r.t.Helper()
	r.nothingLeft()
	if len(want) == 0 {
		r.t.Fatalf("the broker took nothing at all")
	}
	for id := range c.times() {
		if _, ok := want[id]; !ok {
			r.t.Fatalf("message %v arrived although it was refused", id)
		}
	}
}

func publishCounts(r *brokerRig) {
	r.publish(r.t, r.t.Context(), nil)
	r.publish(r.t, r.t.Context(), []outbox.Message{})
	c := r.consume(nil)
	var all []outbox.Message
	for _, n := range []int{1, 2, 9, 10, 11, 99} {
		msgs := r.texts(n)
		r.send(msgs...)
		all = append(all, msgs...)
	}
	r.nothingLeft()
	exactlyOnce(r.t, all, c)
}

func publishRefused(r *brokerRig) {
	if r.Refuses == nil {
		return // it takes everything
	}
	c := r.consume(nil)
	msgs := r.texts(25)
	var good []outbox.Message
	for i := range msgs {
		if i%8 == 3 {
			msgs[i].Payload = []byte{'{', 0, 0xff, '}'}
			if !r.Refuses(msgs[i]) {
				r.t.Fatalf("the harness does not refuse %q", msgs[i].Payload)
			}
		} else {
			good = append(good, msgs[i])
		}
	}
	for i, result := range r.publish(r.t, r.t.Context(), msgs) {
		if i%8 == 3 {
			permanent(r.t, result.Err, msgs[i])
		} else if result.Err != nil {
			r.t.Fatalf("message %d suffered from its neighbour: %v", i, result.Err)
		}
	}
	r.nothingLeft()
	exactlyOnce(r.t, good, c)
}

func publishOversized(r *brokerRig) {
	if r.MaxBytes == 0 {
		return // it takes everything
	}
	c := r.consume(nil)
	msgs := r.texts(50)
	msgs[17].Payload = bytes.Repeat([]byte("x"), r.MaxBytes+1)
	for i, result := range r.publish(r.t, r.t.Context(), msgs) {
		if i == 17 {
			permanent(r.t, result.Err, outbox.Message{ID: msgs[i].ID})
		} else if result.Err != nil {
			r.t.Fatalf("message %d suffered from its neighbour: %v", i, result.Err)
		}
	}
	r.nothingLeft()
	exactlyOnce(r.t, append(msgs[:17:17], msgs[18:]...), c)
}

func publishLarge(r *brokerRig) {
	c := r.consume(nil)
	msgs := r.texts(12)
	for i := range msgs {
		msgs[i].Payload = bytes.Repeat([]byte{'a' + byte(i)}, 200<<10)
	}
	r.send(msgs...)
	r.nothingLeft()
	exactlyOnce(r.t, msgs, c)
	for _, m := range msgs {
		if got, _ := c.find(m.ID); !bytes.Equal(m.Payload, got.Payload) {
			r.t.Fatalf("a payload of %d bytes came changed", len(m.Payload))
		}
	}
}

// publishOrder publishes several messages of each key in one call, and again.
func publishOrder(r *brokerRig) {
	if !r.OrderPerKey {
		return // it promises none
	}
	const keys, rounds, each = 3, 4, 3
	var all []outbox.Message
	for round := range rounds {
		msgs := r.texts(keys * each)
		for i := range msgs {
			msgs[i].Key = fmt.Sprintf("key %d", i%keys) // a space: not every broker takes it as it is
			msgs[i].Payload = fmt.Appendf(nil, `%d`, round*each+i/keys)
		}
		r.send(msgs...)
		all = append(all, msgs...)
	}
	c := r.consume(nil)
	r.nothingLeft()
	exactlyOnce(r.t, all, c)
	next := map[string]int{}
	for _, m := range c.handled {
		if string(m.Payload) != fmt.Sprint(next[m.Key]) {
			r.t.Fatalf("%s: number %s came when %d was due", m.Key, m.Payload, next[m.Key])
		}
		next[m.Key]++
	}
}

func publishConcurrently(r *brokerRig) {
	c := r.consume(nil)
	var all []outbox.Message
	var wg sync.WaitGroup
	for range 8 {
		msgs := r.texts(23)
		all = append(all, msgs...)
		wg.Go(func() {
			for i, result := range r.Publisher.Publish(context.Background(), msgs) {
				if result.Err != nil {
					r.t.Errorf("message %d: %v", i, result.Err)
				}
			}
		})
	}
	wg.Wait()
	r.nothingLeft()
	exactlyOnce(r.t, all, c)
}

func publishEnded(r *brokerRig) {
	ctx, cancel := context.WithCancel(r.t.Context())
	cancel()
	for i, result := range r.publish(r.t, ctx, r.texts(25)) {
		unavailable(r.t, i, result, context.Canceled)
	}
	if n := r.left(); n != 0 {
		r.t.Fatalf("%d messages were sent although the context had ended before", n)
	}
}

func publishHanging(r *brokerRig) {
	if r.Hang == nil {
		return // it cannot be made to
	}
	r.send(r.texts(1)...) // connections and names are known
	resume := r.Hang()
	defer resume()
	for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc, error){
		"cancelled": func(ctx context.Context) (context.Context, context.CancelFunc, error) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(100*time.Millisecond, cancel)
			return ctx, cancel, context.Canceled
		},
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc, error) {
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			return ctx, cancel, context.DeadlineExceeded
		},
	} {
		ctx, cancel, reason := end(r.t.Context())
		started := time.Now()
		results := r.publish(r.t, ctx, r.texts(25))
		cancel()
		if took := time.Since(started); took > 5*time.Second {
			r.t.Fatalf("%s: Publish returned %v after its context ended", name, took)
		}
		for i, result := range results {
			unavailable(r.t, i, result, reason)
		}
	}
}

func unavailable(t failer, i int, result outbox.Result, reason error) {
	t.Helper()
	if result.Err == nil {
		t.Fatalf("message %d counts as acknowledged", i)
	}
	if outbox.ClassOf(result.Err) != outbox.ClassUnavailable {
		t.Fatalf("message %d is %v, want unavailable: %v", i, outbox.ClassOf(result.Err), result.Err)
	}
	if errors.Is(reason, context.DeadlineExceeded) && !outbox.IsTimeout(result.Err) {
		t.Fatalf("message %d: the deadline has passed, and that is no time-out: %v", i, result.Err)
	}
}
