// Package awsrig is what the tests of the AWS brokers share: an emulator behind
// a proxy that makes it fail as the real services do now and then, and the
// faults that every publisher has to bear.
package awsrig

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

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

// Rig is an emulator and a proxy in front of it. The test's end closes both.
type Rig struct {
	T     testing.TB
	Proxy *awsproxy.Server
	// Through reaches the emulator through the proxy, with one attempt for each
	// call; Direct without it.
	Through, Direct aws.Config
	// SQS goes through the proxy, Queues does not.
	SQS, Queues *sqs.Client
}

// New starts both.
func New(t testing.TB) *Rig {
	t.Helper()
	emulator := awsemulator.Start()
	t.Cleanup(emulator.Close)
	proxy, err := awsproxy.Start(emulator.Endpoint, testsize.Seed(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	r := &Rig{T: t, Proxy: proxy, Through: awsemulator.Config(proxy.URL), Direct: emulator.Config()}
	r.Through.RetryMaxAttempts = 1
	r.SQS, r.Queues = sqs.NewFromConfig(r.Through), sqs.NewFromConfig(r.Direct)
	return r
}

// Name is one that nobody else has, with the suffix at its end.
func Name(suffix string) string {
	return "test-" + strings.ReplaceAll(uuid.NewString(), "-", "")[:16] + suffix
}

// Queue creates a queue with a name of its own that ends in the suffix.
func (r *Rig) Queue(suffix string, attributes map[string]string) string {
	r.T.Helper()
	name, attrs := Name(suffix), map[string]string{}
	maps.Copy(attrs, attributes)
	if strings.HasSuffix(suffix, ".fifo") {
		attrs["FifoQueue"] = "true"
	}
	if _, err := r.Queues.CreateQueue(r.T.Context(), &sqs.CreateQueueInput{QueueName: aws.String(name), Attributes: attrs}); err != nil {
		r.T.Fatalf("create queue %s: %v", name, err)
	}
	return name
}

// Consumer is one that reaches SQS through the proxy. Unless the config says
// otherwise it waits a second, hides for three, tries again after one, and logs
// nothing.
func (r *Rig) Consumer(cfg sqsbroker.ConsumerConfig) *sqsbroker.Consumer {
	r.T.Helper()
	if cfg.Client == nil {
		cfg.Client = r.SQS
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
		r.T.Fatal(err)
	}
	return c
}

// URL finds the queue without the proxy.
func (r *Rig) URL(queue string) *string {
	r.T.Helper()
	url, err := sqsbroker.QueueURL(r.T.Context(), r.Queues, queue)
	if err != nil {
		r.T.Fatal(err)
	}
	return aws.String(url)
}

// Left counts what waits in the queue and what is being handled.
func (r *Rig) Left(ctx context.Context, queue string) (int, error) {
	out, err := r.Queues.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: r.URL(queue), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
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

// Waiting receives everything that waits in the queue.
func (r *Rig) Waiting(queue string) []types.Message {
	r.T.Helper()
	var all []types.Message
	for {
		out, err := r.Queues.ReceiveMessage(r.T.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: r.URL(queue), MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			r.T.Fatal(err)
		}
		if len(out.Messages) == 0 {
			return all
		}
		all = append(all, out.Messages...)
	}
}

// Bodies receives everything that waits in the queue, and returns how often it
// had each body.
func (r *Rig) Bodies(queue string) map[string]int {
	r.T.Helper()
	got := map[string]int{}
	for _, m := range r.Waiting(queue) {
		got[aws.ToString(m.Body)]++
	}
	return got
}

// Once checks that each of these messages is in the queue once, and no other.
func (r *Rig) Once(queue string, want ...outbox.Message) {
	r.T.Helper()
	got := r.Bodies(queue)
	for _, m := range want {
		if n := got[string(m.Payload)]; n != 1 {
			r.T.Errorf("%.100s is in queue %s %d times, want once", m.Payload, queue, n)
		}
	}
	if len(got) != len(want) {
		r.T.Errorf("queue %s has %d messages, want %d", queue, len(got), len(want))
	}
}

// All publishes the messages, which must be taken.
func (r *Rig) All(p outbox.Publisher, msgs []outbox.Message) {
	r.T.Helper()
	for i, result := range p.Publish(r.T.Context(), msgs) {
		if result.Err != nil || result.BrokerID == "" {
			r.T.Fatalf("message %d: %+v", i, result)
		}
	}
}

// Orders makes n messages.
func Orders(t testing.TB, n int) []outbox.Message {
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

// Pick returns the messages whose result has an error, checking its class.
func Pick(t testing.TB, msgs []outbox.Message, results []outbox.Result, want outbox.Class) []outbox.Message {
	t.Helper()
	var failed []outbox.Message
	for i, result := range results {
		if result.Err == nil {
			continue
		}
		if got := outbox.ClassOf(result.Err); got != want {
			t.Errorf("message %d is %v, want %v: %v", i, got, want, result.Err)
		}
		failed = append(failed, msgs[i])
	}
	return failed
}

// taken is what SQS and SNS take, as their documentation has it.
var taken = regexp.MustCompile(`^[\x{9}\x{A}\x{D}\x{20}-\x{D7FF}\x{E000}-\x{FFFD}\x{10000}-\x{10FFFF}]*$`)

// RefusedRaw reports whether a publisher without an encoding refuses m.
func RefusedRaw(m outbox.Message) bool {
	for _, s := range []string{string(m.Payload), m.Topic, m.Key, m.Type, m.ContentType} {
		if !utf8.ValidString(s) || !taken.MatchString(s) {
			return true
		}
	}
	return len(m.Payload) == 0
}
