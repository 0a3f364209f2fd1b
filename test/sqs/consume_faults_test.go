package sqs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/uuid"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/memstore"
	"github.com/postrider/postrider/test/internal/awsrig"
)

// start runs the consumer until the test ends or stop is called; stop returns
// what Consume returned.
func start(t *testing.T, c *sqsbroker.Consumer, handle inbox.Handler) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Consume(ctx, handle) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(60 * time.Second):
			return errors.New("the consumer does not end")
		}
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// tally counts deliveries by id.
type tally struct {
	mu sync.Mutex
	n  map[uuid.UUID]int
}

func (c *tally) note(m outbox.Message) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[uuid.UUID]int{}
	}
	c.n[m.ID]++
	return c.n[m.ID]
}

func (c *tally) counting(_ context.Context, m outbox.Message) error { c.note(m); return nil }

func (c *tally) distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.n)
}

// each checks that every one of the messages was delivered n times.
func (c *tally) each(t *testing.T, msgs []outbox.Message, n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, m := range msgs {
		if c.n[m.ID] != n {
			t.Errorf("message %d was handled %d times, want %d", i, c.n[m.ID], n)
		}
	}
}

func (r *rig) publishAll(queue string, msgs []outbox.Message) {
	r.T.Helper()
	for i, result := range r.publisher(sqsbroker.PublisherConfig{Client: r.Queues, Queue: queue}).Publish(r.T.Context(), msgs) {
		if result.Err != nil {
			r.T.Fatalf("message %d: %v", i, result.Err)
		}
	}
}

// Two consumers get copies of the same messages, some at the same moment: the
// inbox lets one effect through.
func TestTwoCopiesHaveOneEffect(t *testing.T) {
	r := newRig(t)
	queue := r.Queue("", nil)
	msgs := awsrig.Orders(t, 40)
	r.publishAll(queue, msgs)
	r.publishAll(queue, msgs)
	r.Proxy.Add(awsproxy.Rule{Target: "ReceiveMessage", Fault: awsproxy.DeliverTwice()})
	store := memstore.Inbox{Store: memstore.New(memstore.Options{})}
	var effects, deliveries tally
	once := inbox.Once(store, "fulfilment", func(_ context.Context, _ *memstore.Tx, m outbox.Message) error {
		effects.note(m)
		return nil
	})
	handle := func(ctx context.Context, m outbox.Message) error {
		deliveries.note(m)
		return once(ctx, m)
	}
	for range 2 {
		start(t, r.Consumer(sqsbroker.ConsumerConfig{Queue: queue}), handle)
	}
	until(t, "the queue is empty", func() bool { return r.mustLeft(queue) == 0 && effects.distinct() == len(msgs) })
	effects.each(t, msgs, 1)
	deliveries.mu.Lock()
	defer deliveries.mu.Unlock()
	for i, m := range msgs {
		if deliveries.n[m.ID] < 2 {
			t.Errorf("message %d was delivered %d times: the test has tested nothing", i, deliveries.n[m.ID])
		}
	}
}

// Deletions that fail are tried again, entry by entry, and nothing is handled
// twice meanwhile.
func TestFailedDeletionsAreTriedAgain(t *testing.T) {
	r := newRig(t)
	queue := r.Queue("", nil)
	msgs := awsrig.Orders(t, 60)
	r.publishAll(queue, msgs)
	r.Proxy.Add(awsproxy.Rule{Target: "DeleteMessageBatch", Count: 3, Fault: awsproxy.Throttle()})
	for i := range 10 {
		r.Proxy.Add(awsproxy.Rule{Target: "DeleteMessageBatch", Probability: 0.3, Count: 5, Fault: awsproxy.FailEntries(awsproxy.At(i), "InternalError", false)})
	}
	var seen tally
	stop := start(t, r.Consumer(sqsbroker.ConsumerConfig{Queue: queue}), seen.counting)
	until(t, "the queue is empty", func() bool { return r.mustLeft(queue) == 0 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	seen.each(t, msgs, 1)
}

// While nothing can be deleted no more than what fits in hand is received, what
// is in hand is kept hidden, and the stop says what will come again.
func TestDeletionIsAway(t *testing.T) {
	r := newRig(t)
	queue := r.Queue("", nil)
	msgs := awsrig.Orders(t, 200)
	r.publishAll(queue, msgs)
	end := r.Proxy.Add(awsproxy.Rule{Target: "DeleteMessageBatch", Fault: awsproxy.AccessDenied()})
	var seen tally
	c := r.Consumer(sqsbroker.ConsumerConfig{Queue: queue, Handlers: 10, StopTimeout: 100 * time.Millisecond})
	stop := start(t, c, seen.counting)
	until(t, "visibility was extended twice", func() bool { return r.Proxy.Requests("ChangeMessageVisibilityBatch") >= 6 })
	handled := seen.distinct()
	if handled > 40 {
		t.Errorf("%d messages were handled although none can be deleted", handled)
	}
	err := stop()
	if err == nil || !strings.Contains(err.Error(), "did not delete") {
		t.Errorf("the stop left messages undeleted and says %v", err)
	}
	if n := r.mustLeft(queue); n != len(msgs) {
		t.Errorf("%d messages are left, want all", n)
	}
	end()
}

// The service is away for a while: no busy loop, and everything goes on.
func TestUnreachableForAWhile(t *testing.T) {
	r := newRig(t)
	queue := r.Queue("", nil)
	var seen tally
	start(t, r.Consumer(sqsbroker.ConsumerConfig{Queue: queue, Handlers: 10}), seen.counting)
	first := awsrig.Orders(t, 5)
	r.publishAll(queue, first)
	until(t, "it runs", func() bool { return seen.distinct() == len(first) && r.mustLeft(queue) == 0 })

	r.Proxy.Down()
	before := r.Proxy.Connects()
	later := awsrig.Orders(t, 30)
	r.publishAll(queue, later)
	p := r.publisher(sqsbroker.PublisherConfig{Queue: queue})
	more := awsrig.Orders(t, 5)
	if failed := awsrig.Pick(t, more, p.Publish(t.Context(), more), outbox.ClassUnavailable); len(failed) != len(more) {
		t.Errorf("%d of %d messages failed while the queue was away", len(failed), len(more))
	}
	outage := time.NewTimer(2 * time.Second)
	<-outage.C
	if n := r.Proxy.Connects() - before; n < 3 || n > 25 {
		t.Errorf("%d connects in 2 s of outage", n)
	}
	r.Proxy.Up()
	if failed := awsrig.Pick(t, more, p.Publish(t.Context(), more), outbox.ClassUnavailable); len(failed) != 0 {
		t.Errorf("%d messages failed afterwards", len(failed))
	}
	all := append(append(first, later...), more...)
	until(t, "all are handled", func() bool { return seen.distinct() == len(all) && r.mustLeft(queue) == 0 })
	seen.each(t, all, 1)
}

// What fails for ever and what cannot be decoded end in the dead-letter queue.
func TestPoisonEndsInTheDeadLetterQueue(t *testing.T) {
	r := newRig(t)
	queue, dead := r.withDeadLetters(2)
	msgs := awsrig.Orders(t, 30)
	r.publishAll(queue, msgs)
	for name, attributes := range map[string]map[string]string{
		"id":       {"postrider-id": "none"},
		"encoding": {"postrider-encoding": "rot13"},
		"base64":   {"postrider-encoding": "base64"},
		"headers":  {"postrider-headers": "[]"},
	} {
		in := &sqs.SendMessageInput{QueueUrl: r.URL(queue), MessageBody: aws.String("undecodable " + name), MessageAttributes: map[string]types.MessageAttributeValue{}}
		for k, v := range attributes {
			in.MessageAttributes[k] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(v)}
		}
		if _, err := r.Queues.SendMessage(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	var log syncBuffer
	var seen tally
	start(t, r.Consumer(sqsbroker.ConsumerConfig{Queue: queue, Logger: slog.New(slog.NewTextHandler(&log, nil))}), func(_ context.Context, m outbox.Message) error {
		seen.note(m)
		switch m.ID {
		case msgs[3].ID:
			return errors.New("never")
		case msgs[4].ID:
			return outbox.Permanent(errors.New("surely never"))
		case msgs[5].ID:
			panic("alas")
		}
		return nil
	})
	until(t, "seven dead letters and an empty queue", func() bool { return r.mustLeft(dead) == 7 && r.mustLeft(queue) == 0 })
	got := r.Bodies(dead)
	for _, want := range []string{"undecodable id", "undecodable encoding", "undecodable base64", "undecodable headers", `{"n":3}`, `{"n":4}`, `{"n":5}`} {
		if got[want] != 1 {
			t.Errorf("%s is %d times in the dead-letter queue", want, got[want])
		}
	}
	seen.each(t, append(append([]outbox.Message{}, msgs[:3]...), msgs[6:]...), 1)
	seen.each(t, msgs[3:6], 2)
	for _, text := range []string{"never", "alas", "rot13", "cannot be decoded"} {
		if !strings.Contains(log.String(), text) {
			t.Errorf("the log does not say %q", text)
		}
	}
}

// A stop does not wait for the end of a long poll.
func TestStopAbortsTheLongPoll(t *testing.T) {
	r := newRig(t)
	queue := r.Queue("", nil)
	var seen tally
	stop := start(t, r.Consumer(sqsbroker.ConsumerConfig{Queue: queue, WaitTime: 20 * time.Second}), seen.counting)
	until(t, "a poll is under way", func() bool { return r.Proxy.Requests("ReceiveMessage") > 0 })
	started := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
}

// A consumer that starts before its queue exists waits for it.
func TestConsumerWaitsForItsQueue(t *testing.T) {
	r := newRig(t)
	name := strings.Replace(r.Queue("", nil), "test-", "late-", 1)
	var seen tally
	start(t, r.Consumer(sqsbroker.ConsumerConfig{Queue: name}), seen.counting)
	until(t, "it asked for its queue", func() bool { return r.Proxy.Requests("GetQueueUrl") > 1 })
	if _, err := r.Queues.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(name)}); err != nil {
		t.Fatal(err)
	}
	msgs := awsrig.Orders(t, 3)
	r.publishAll(name, msgs)
	until(t, "all are handled", func() bool { return seen.distinct() == len(msgs) })
}

// Messages that others put into the queue have an id that all their deliveries
// share.
func TestForeignMessages(t *testing.T) {
	r := newRig(t)
	queue := r.Queue("", nil)
	sent, err := r.Queues.SendMessage(t.Context(), &sqs.SendMessageInput{
		QueueUrl: r.URL(queue), MessageBody: aws.String("hello"),
		MessageAttributes: map[string]types.MessageAttributeValue{
			"EventType": {DataType: aws.String("String"), StringValue: aws.String("greeting")},
			"count":     {DataType: aws.String("Number"), StringValue: aws.String("9007199254740993")},
			"blob":      {DataType: aws.String("Binary"), BinaryValue: []byte{0xff, 0xfe}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var deliveries atomic.Int32
	got := make(chan outbox.Message, 2)
	start(t, r.Consumer(sqsbroker.ConsumerConfig{Queue: queue}), func(_ context.Context, m outbox.Message) error {
		got <- m
		if deliveries.Add(1) == 1 {
			return errors.New("once more")
		}
		return nil
	})
	for range 2 {
		m := <-got
		if m.ID.String() != *sent.MessageId {
			t.Errorf("the id is %v, want the one that SQS gave: %v", m.ID, *sent.MessageId)
		}
		if m.Topic != queue || m.Type != "greeting" || string(m.Payload) != "hello" {
			t.Errorf("%+v", m)
		}
		if fmt.Sprint(m.Headers) != "map[blob://4= count:9007199254740993]" {
			t.Errorf("headers %v", m.Headers)
		}
	}
}

// syncBuffer is a buffer for a logger of several goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
