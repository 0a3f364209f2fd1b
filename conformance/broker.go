package conformance

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
)

// BrokerHarness is one fresh, empty queue (or what the broker calls it), the
// two ends of it, and what the suites have to know of the broker.
type BrokerHarness struct {
	// Publisher sends to the queue, whatever the messages' topics and keys are.
	Publisher outbox.Publisher
	// Consumer makes one more consumer of the queue; each message goes to one
	// of them.
	Consumer func(t testing.TB) inbox.Consumer
	// Refuses says which messages the broker cannot take. Nil: it takes all.
	Refuses func(m outbox.Message) bool
	// MaxBytes is a payload size that the broker refuses when it is exceeded,
	// if that is below outbox.MaxPayload. 0: it takes all that an outbox can
	// hold.
	MaxBytes int
	// OrderPerKey: messages of one key that are published one after the other
	// are handled one after the other, in that order.
	OrderPerKey bool
	// Hidden is how long a message is kept from other consumers if nobody
	// extends that. 0: for as long as the consumer lives.
	Hidden time.Duration
	// Left counts the messages that wait in the queue or are being handled.
	Left func(ctx context.Context) (int, error)
	// Poison puts something into the queue that no consumer can decode. Nil:
	// nobody can.
	Poison func(ctx context.Context) error
	// Hang makes the broker answer nothing until resume is called. Nil: it
	// cannot be made to.
	Hang func() (resume func())
}

// BrokerFactory makes a fresh, empty queue. It registers its own clean-up.
type BrokerFactory func(t testing.TB) BrokerHarness

// brokerPatience is how long the broker suites wait for what must happen.
const brokerPatience = 60 * time.Second

// failer is a test, or one run of a property.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

type brokerRig struct {
	BrokerHarness
	t *testing.T
}

type brokerTest struct {
	name string
	run  func(r *brokerRig)
}

// runBrokerTests runs the tests, side by side if none of them is a property.
func runBrokerTests(t *testing.T, factory BrokerFactory, sideBySide bool, tests []brokerTest) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if sideBySide {
				t.Parallel() // they wait more than they work
			}
			test.run(&brokerRig{BrokerHarness: factory(t), t: t})
		})
	}
}

// texts makes n messages that every broker takes, without keys.
func (r *brokerRig) texts(n int) []outbox.Message {
	r.t.Helper()
	msgs := make([]outbox.Message, n)
	for i := range msgs {
		msgs[i] = outbox.Message{
			ID: newID(r.t), Topic: "orders", Type: "order.created", ContentType: outbox.DefaultContentType,
			Payload: fmt.Appendf(nil, `{"n":%d}`, i),
		}
	}
	return msgs
}

func newID(t failer) uuid.UUID {
	t.Helper()
	id, err := outbox.NewID()
	if err != nil {
		t.Fatalf("make an id: %v", err)
	}
	return id
}

// publish sends the messages and checks that there is one result for each.
func (r *brokerRig) publish(t failer, ctx context.Context, msgs []outbox.Message) []outbox.Result {
	t.Helper()
	results := r.Publisher.Publish(ctx, msgs)
	if len(results) != len(msgs) {
		t.Fatalf("%d results for %d messages", len(results), len(msgs))
	}
	return results
}

// send publishes what must be taken.
func (r *brokerRig) send(msgs ...outbox.Message) {
	r.t.Helper()
	for i, result := range r.publish(r.t, r.t.Context(), msgs) {
		if result.Err != nil {
			r.t.Fatalf("message %d: %v", i, result.Err)
		}
	}
}

// until waits for the condition.
func (r *brokerRig) until(what string, condition func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(brokerPatience)
	for !condition() {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within %v: %s", brokerPatience, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// nothingLeft waits until every message has been acknowledged.
func (r *brokerRig) nothingLeft() {
	r.t.Helper()
	r.until("the queue is empty", func() bool { return r.left() == 0 })
}

func (r *brokerRig) left() int {
	r.t.Helper()
	n, err := r.Left(r.t.Context())
	if err != nil {
		r.t.Fatalf("count what is left: %v", err)
	}
	return n
}

// running is a consumer at work.
type running struct {
	t    *testing.T
	stop context.CancelFunc
	done chan error

	mu      sync.Mutex
	handled []outbox.Message // in the order in which their handlers started
}

// consume starts a consumer. handle may be nil.
func (r *brokerRig) consume(handle inbox.Handler) *running {
	r.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	c := &running{t: r.t, stop: stop, done: make(chan error, 1)}
	consumer := r.Consumer(r.t)
	go func() {
		c.done <- consumer.Consume(ctx, func(ctx context.Context, m outbox.Message) error {
			c.mu.Lock()
			c.handled = append(c.handled, m)
			c.mu.Unlock()
			if handle == nil {
				return nil
			}
			return handle(ctx, m)
		})
	}()
	r.t.Cleanup(c.end)
	return c
}

// end stops the consumer and waits for it. Safe to call twice.
func (c *running) end() {
	c.t.Helper()
	c.stop()
	select {
	case err := <-c.done:
		c.done <- nil
		if err != nil {
			c.t.Errorf("the consumer ended with %v", err)
		}
	case <-time.After(brokerPatience):
		c.t.Errorf("the consumer did not end within %v", brokerPatience)
		c.done <- nil
	}
}

// times counts the deliveries of each id.
func (c *running) times() map[uuid.UUID]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := map[uuid.UUID]int{}
	for _, m := range c.handled {
		n[m.ID]++
	}
	return n
}

func (c *running) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.handled)
}

// find returns the first delivery of the id.
func (c *running) find(id uuid.UUID) (outbox.Message, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.handled {
		if m.ID == id {
			return m, true
		}
	}
	return outbox.Message{}, false
}

// exactlyOnce checks that the consumers together handled each message once.
func exactlyOnce(t failer, msgs []outbox.Message, consumers ...*running) {
	t.Helper()
	total := map[uuid.UUID]int{}
	for _, c := range consumers {
		for id, n := range c.times() {
			total[id] += n
		}
	}
	for i, m := range msgs {
		if total[m.ID] != 1 {
			t.Fatalf("message %d was handled %d times, want once", i, total[m.ID])
		}
	}
	if len(total) != len(msgs) {
		t.Fatalf("%d messages were handled, %d were published", len(total), len(msgs))
	}
}

// differArrived compares what was published with what arrived: all that travels.
func differArrived(want, got outbox.Message) string {
	for _, m := range []*outbox.Message{&want, &got} {
		m.NotBefore, m.Expires, m.CreatedAt = time.Time{}, time.Time{}, time.Time{}
		if m.ContentType == "" {
			m.ContentType = outbox.DefaultContentType
		}
	}
	if bytes.Equal(want.Payload, got.Payload) {
		want.Payload, got.Payload = nil, nil // cmp takes its time over a megabyte
	}
	return cmp.Diff(want, got, cmpopts.EquateEmpty())
}

// travelling draws messages: half of the payloads are text, since some brokers
// take nothing else.
func travelling() *rapid.Generator[outbox.Message] {
	whole := anyMessage(time.Now())
	return rapid.Custom(func(t *rapid.T) outbox.Message {
		m := whole.Draw(t, "message")
		m.NotBefore, m.Expires = time.Time{}, time.Time{}
		if rapid.Bool().Draw(t, "plain") {
			m.Payload = []byte(rapid.StringMatching(`\{"n":[0-9]{1,20},"s":"[ -~é🐎]{0,30}"\}`).Draw(t, "json"))
			m.Topic, m.Key, m.Type, m.ContentType = "orders", rapid.StringMatching(`[ -~]{0,40}`).Draw(t, "plain key"), "order.created", "application/json"
		}
		return m
	})
}
