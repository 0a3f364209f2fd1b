package sqs_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/test/internal/awsrig"
)

func TestFaults(t *testing.T) {
	awsrig.Faults(t, awsrig.Publishing{Operation: "SendMessageBatch", New: func(shared *awsrig.Rig, fifo bool) (outbox.Publisher, string) {
		r, suffix := &rig{shared}, ""
		if fifo {
			suffix = ".fifo"
		}
		queue := r.Queue(suffix, nil)
		return r.publisher(sqsbroker.PublisherConfig{Queue: queue}), queue
	}})
}

func TestOversizedMessageFailsAlone(t *testing.T) {
	r := newRig(t)
	queue := r.Queue("", nil)
	p := r.publisher(sqsbroker.PublisherConfig{Queue: queue})
	msgs := awsrig.Orders(t, 50)
	msgs[11].Payload = bytes.Repeat([]byte("x"), sqsbroker.MaxMessageBytes)
	results := p.Publish(t.Context(), msgs)
	failed := awsrig.Pick(t, msgs, results, outbox.ClassPermanent)
	if len(failed) != 1 || failed[0].ID != msgs[11].ID || !strings.Contains(results[11].Err.Error(), "at most 1048576") {
		t.Fatalf("%d messages failed, want number 11: %v", len(failed), results[11].Err)
	}
	r.Once(queue, append(msgs[:11:11], msgs[12:]...)...)
}

// One of a hundred goes to a queue that does not exist, by name and by URL.
func TestUnknownDestinationLosesOnlyItself(t *testing.T) {
	r := newRig(t)
	queue := r.Queue("", nil)
	url := *r.URL(queue)
	missing := "gone-" + queue
	r.Proxy.Add(awsproxy.Rule{Target: "SendMessageBatch", Containing: missing, Fault: awsproxy.MissingQueue()})
	for _, template := range []string{"{topic}", strings.TrimSuffix(url, queue) + "{topic}"} {
		p := r.publisher(sqsbroker.PublisherConfig{Queue: template})
		msgs := awsrig.Orders(t, 100)
		for i := range msgs {
			msgs[i].Topic = queue
		}
		msgs[42].Topic = missing
		msgs[77].Topic = "no name of a queue"
		failed := awsrig.Pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassPermanent)
		if len(failed) != 2 || failed[0].ID != msgs[42].ID || failed[1].ID != msgs[77].ID {
			t.Fatalf("%s: %d messages failed, want numbers 42 and 77", template, len(failed))
		}
		r.Once(queue, append(append(msgs[:42:42], msgs[43:77]...), msgs[78:]...)...)
	}
}

// A fixed queue that is missing is nobody's message's fault: an operator
// creates it, and everything goes on.
func TestMissingFixedQueueIsWaitedFor(t *testing.T) {
	r := newRig(t)
	name := strings.Replace(r.Queue("", nil), "test-", "late-", 1)
	p := r.publisher(sqsbroker.PublisherConfig{Queue: name})
	msgs := awsrig.Orders(t, 3)
	refused := func(when string) {
		t.Helper()
		for i, result := range p.Publish(t.Context(), msgs) {
			if result.Err == nil || outbox.ClassOf(result.Err) != outbox.ClassUnavailable || !outbox.IsAlarm(result.Err) {
				t.Errorf("%s: message %d has %v, want unavailable with an alarm", when, i, result.Err)
			}
		}
	}
	refused("never created")
	in := &sqs.CreateQueueInput{QueueName: aws.String(name)}
	if _, err := r.Queues.CreateQueue(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if failed := awsrig.Pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassUnavailable); len(failed) != 0 {
		t.Fatalf("%d messages failed although the queue exists", len(failed))
	}
	r.Once(name, msgs...)
	if _, err := r.Queues.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: r.URL(name)}); err != nil {
		t.Fatal(err)
	}
	refused("deleted")
	if _, err := r.Queues.CreateQueue(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if failed := awsrig.Pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassUnavailable); len(failed) != 0 {
		t.Fatalf("%d messages failed although the queue exists again", len(failed))
	}
	r.Once(name, msgs...)
}

// The client's own retries stay within the context.
func TestRetriesOfTheSDKEndWithTheContext(t *testing.T) {
	r := newRig(t)
	queue := r.Queue("", nil)
	patient := sqs.NewFromConfig(awsemulator.Config(r.Proxy.URL), func(o *sqs.Options) { o.RetryMaxAttempts = 1000 })
	p := r.publisher(sqsbroker.PublisherConfig{Client: patient, Queue: queue})
	r.Proxy.Add(awsproxy.Rule{Fault: awsproxy.Unavailable()})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	started := time.Now()
	err := p.Publish(ctx, awsrig.Orders(t, 1))[0].Err
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("Publish took %v", took)
	}
	if !outbox.IsTimeout(err) {
		t.Errorf("want a time-out: %v", err)
	}
	if n := r.Proxy.Requests(""); n < 2 {
		t.Errorf("%d requests: nothing was tried again", n)
	}
}

func TestCancelledWhileSomeAreSent(t *testing.T) {
	r := newRig(t)
	queue := r.Queue("", nil)
	p := r.publisher(sqsbroker.PublisherConfig{Queue: queue, Concurrency: 1})
	r.Proxy.Add(awsproxy.Rule{Target: "SendMessageBatch", Skip: 1, Fault: awsproxy.Hang()})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	msgs := awsrig.Orders(t, 35)
	var sent []outbox.Message
	for i, result := range p.Publish(ctx, msgs) {
		if result.Err == nil {
			sent = append(sent, msgs[i])
		} else if outbox.ClassOf(result.Err) != outbox.ClassUnavailable || !errors.Is(result.Err, context.Canceled) {
			t.Errorf("message %d: %v", i, result.Err)
		}
	}
	if len(sent) == 0 || len(sent) > 10 {
		t.Fatalf("%d messages count as sent, want those of one request", len(sent))
	}
	r.Once(queue, sent...)
}
