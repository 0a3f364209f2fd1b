// Package sqs_test runs broker/sqsbroker against an emulator, through a proxy
// that makes it fail as the real service does now and then.
package sqs_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/uuid"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
)

// rig is an emulator, a proxy in front of it, and a client of each.
type rig struct {
	t      testing.TB
	proxy  *awsproxy.Server
	client *sqs.Client // through the proxy, one attempt for each call
	direct *sqs.Client // to the emulator
}

func newRig(t testing.TB) *rig {
	t.Helper()
	emulator := awsemulator.Start()
	t.Cleanup(emulator.Close)
	proxy, err := awsproxy.Start(emulator.Endpoint, testsize.Seed(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return &rig{
		t: t, proxy: proxy,
		client: sqs.NewFromConfig(awsemulator.Config(proxy.URL), func(o *sqs.Options) { o.RetryMaxAttempts = 1 }),
		direct: sqs.NewFromConfig(emulator.Config()),
	}
}

// queue creates a queue with a name of its own that ends in the suffix.
func (r *rig) queue(suffix string, attributes map[string]string) string {
	r.t.Helper()
	name := "test-" + strings.ReplaceAll(uuid.NewString(), "-", "")[:16] + suffix
	attrs := maps.Clone(attributes)
	if strings.HasSuffix(suffix, ".fifo") {
		if attrs == nil {
			attrs = map[string]string{}
		}
		attrs["FifoQueue"] = "true"
	}
	if _, err := r.direct.CreateQueue(r.t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(name), Attributes: attrs}); err != nil {
		r.t.Fatalf("create queue %s: %v", name, err)
	}
	return name
}

// withDeadLetters creates a queue and its dead-letter queue.
func (r *rig) withDeadLetters(maxReceives int) (queue, dead string) {
	r.t.Helper()
	dead = r.queue("-dead", nil)
	return r.queue("", map[string]string{"RedrivePolicy": fmt.Sprintf(
		`{"deadLetterTargetArn":"arn:aws:sqs:%s:000000000000:%s","maxReceiveCount":"%d"}`, awsemulator.Region, dead, maxReceives)}), dead
}

func (r *rig) publisher(cfg sqsbroker.PublisherConfig) *sqsbroker.Publisher {
	r.t.Helper()
	if cfg.Client == nil {
		cfg.Client = r.client
	}
	p, err := sqsbroker.NewPublisher(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// consumer waits a second, hides for three and tries again after one.
func (r *rig) consumer(cfg sqsbroker.ConsumerConfig) *sqsbroker.Consumer {
	r.t.Helper()
	if cfg.Client == nil {
		cfg.Client = r.client
	}
	if cfg.WaitTime == 0 {
		cfg.WaitTime = time.Second
	}
	if cfg.VisibilityTimeout == 0 {
		cfg.VisibilityTimeout = 3 * time.Second
	}
	if cfg.RetryMax == 0 {
		cfg.RetryMax = time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := sqsbroker.NewConsumer(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// url finds the queue without the proxy.
func (r *rig) url(queue string) *string {
	r.t.Helper()
	url, err := sqsbroker.QueueURL(r.t.Context(), r.direct, queue)
	if err != nil {
		r.t.Fatal(err)
	}
	return aws.String(url)
}

// left counts what waits in the queue and what is being handled.
func (r *rig) left(ctx context.Context, queue string) (int, error) {
	out, err := r.direct.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: r.url(queue), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		return 0, err
	}
	total := 0
	for _, name := range []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	} {
		n, err := strconv.Atoi(out.Attributes[string(name)])
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

func (r *rig) mustLeft(queue string) int {
	r.t.Helper()
	n, err := r.left(r.t.Context(), queue)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// orders makes n messages.
func orders(t testing.TB, n int) []outbox.Message {
	t.Helper()
	msgs := make([]outbox.Message, n)
	for i := range msgs {
		id, err := outbox.NewID()
		if err != nil {
			t.Fatal(err)
		}
		msgs[i] = outbox.Message{
			ID: id, Topic: "orders", Key: fmt.Sprint("order-", i), Type: "order.created",
			ContentType: outbox.DefaultContentType, Payload: fmt.Appendf(nil, `{"n":%d}`, i),
		}
	}
	return msgs
}

// bodies receives everything that waits in the queue, and how often each body.
func (r *rig) bodies(queue string) map[string]int {
	r.t.Helper()
	got := map[string]int{}
	for {
		out, err := r.direct.ReceiveMessage(r.t.Context(), &sqs.ReceiveMessageInput{QueueUrl: r.url(queue), MaxNumberOfMessages: 10})
		if err != nil {
			r.t.Fatal(err)
		}
		if len(out.Messages) == 0 {
			return got
		}
		for _, m := range out.Messages {
			got[aws.ToString(m.Body)]++
		}
	}
}

// once checks that each of these messages is in the queue once, and no other.
func (r *rig) once(queue string, want ...outbox.Message) {
	r.t.Helper()
	got := r.bodies(queue)
	for _, m := range want {
		if n := got[string(m.Payload)]; n != 1 {
			r.t.Errorf("%s is in the queue %d times, want once", m.Payload, n)
		}
	}
	if len(got) != len(want) {
		r.t.Errorf("the queue has %d messages, want %d", len(got), len(want))
	}
}

// until waits for the condition.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
