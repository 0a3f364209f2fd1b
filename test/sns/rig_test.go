// Package sns_test runs broker/snsbroker against an emulator whose topics have
// queues, through a proxy that makes it fail as the real service does now and
// then, and reads the queues with broker/sqsbroker.
package sns_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/uuid"

	"github.com/postrider/postrider/broker/snsbroker"
	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
)

// rig is an emulator, a proxy in front of it, and clients of each.
type rig struct {
	t      testing.TB
	proxy  *awsproxy.Server
	client *sns.Client // through the proxy, one attempt for each call
	sts    *sts.Client // as client
	sqs    *sqs.Client // as client
	topics *sns.Client // to the emulator
	queues *sqs.Client // to the emulator
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
	direct, through := emulator.Config(), awsemulator.Config(proxy.URL)
	through.RetryMaxAttempts = 1
	return &rig{
		t: t, proxy: proxy, client: sns.NewFromConfig(through), sts: sts.NewFromConfig(through), sqs: sqs.NewFromConfig(through),
		topics: sns.NewFromConfig(direct), queues: sqs.NewFromConfig(direct),
	}
}

func name(suffix string) string {
	return "test-" + strings.ReplaceAll(uuid.NewString(), "-", "")[:16] + suffix
}

// topic creates a topic and returns its name and ARN.
func (r *rig) topic(suffix string, attributes map[string]string) (topic, arn string) {
	r.t.Helper()
	topic = name(suffix)
	out, err := r.topics.CreateTopic(r.t.Context(), &sns.CreateTopicInput{Name: aws.String(topic), Attributes: attributes})
	if err != nil {
		r.t.Fatal(err)
	}
	return topic, aws.ToString(out.TopicArn)
}

// queue creates a queue, subscribed to the topic, and returns its name.
func (r *rig) queue(topicARN string, raw bool) string {
	r.t.Helper()
	queue, attributes := name(""), map[string]string{}
	if strings.HasSuffix(topicARN, ".fifo") {
		queue += ".fifo"
		attributes["FifoQueue"] = "true"
	}
	if _, err := r.queues.CreateQueue(r.t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(queue), Attributes: attributes}); err != nil {
		r.t.Fatal(err)
	}
	arn := strings.Replace(topicARN[:strings.LastIndexByte(topicARN, ':')+1], ":sns:", ":sqs:", 1) + queue
	_, err := r.topics.Subscribe(r.t.Context(), &sns.SubscribeInput{
		TopicArn: aws.String(topicARN), Protocol: aws.String("sqs"), Endpoint: aws.String(arn),
		Attributes: map[string]string{"RawMessageDelivery": strconv.FormatBool(raw)},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return queue
}

// pair is a topic with one queue.
func (r *rig) pair(suffix string) (topic, queue string) {
	r.t.Helper()
	topic, arn := r.topic(suffix, nil)
	return topic, r.queue(arn, true)
}

func (r *rig) publisher(cfg snsbroker.PublisherConfig) *snsbroker.Publisher {
	r.t.Helper()
	if cfg.Client == nil {
		cfg.Client = r.client
	}
	cfg.STS = r.sts
	p, err := snsbroker.NewPublisher(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// consumer waits a second and tries again after one.
func (r *rig) consumer(cfg sqsbroker.ConsumerConfig) *sqsbroker.Consumer {
	r.t.Helper()
	cfg.Client, cfg.WaitTime, cfg.RetryMax = r.sqs, time.Second, time.Second
	cfg.Logger = slog.New(slog.DiscardHandler)
	c, err := sqsbroker.NewConsumer(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// url finds the queue without the proxy.
func (r *rig) url(queue string) *string {
	r.t.Helper()
	url, err := sqsbroker.QueueURL(r.t.Context(), r.queues, queue)
	if err != nil {
		r.t.Fatal(err)
	}
	return aws.String(url)
}

// left counts what waits in the queue and what is being handled.
func (r *rig) left(ctx context.Context, queue string) (int, error) {
	out, err := r.queues.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
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

// waiting receives everything that waits in the queue.
func (r *rig) waiting(queue string) []types.Message {
	r.t.Helper()
	var all []types.Message
	for {
		out, err := r.queues.ReceiveMessage(r.t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: r.url(queue), MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			r.t.Fatal(err)
		}
		if len(out.Messages) == 0 {
			return all
		}
		all = append(all, out.Messages...)
	}
}

// once checks that each of these messages is in the queue once, and no other.
func (r *rig) once(queue string, want ...outbox.Message) {
	r.t.Helper()
	got := map[string]int{}
	for _, m := range r.waiting(queue) {
		got[aws.ToString(m.Body)]++
	}
	for _, m := range want {
		if n := got[string(m.Payload)]; n != 1 {
			r.t.Errorf("%.100s is in queue %s %d times, want once", m.Payload, queue, n)
		}
	}
	if len(got) != len(want) {
		r.t.Errorf("queue %s has %d messages, want %d", queue, len(got), len(want))
	}
}

// all publishes the messages, which must be taken.
func (r *rig) all(p outbox.Publisher, msgs []outbox.Message) {
	r.t.Helper()
	for i, result := range p.Publish(r.t.Context(), msgs) {
		if result.Err != nil || result.BrokerID == "" {
			r.t.Fatalf("message %d: %+v", i, result)
		}
	}
}

// pick returns the messages whose result has an error, checking its class.
func pick(t testing.TB, msgs []outbox.Message, results []outbox.Result, want outbox.Class) []outbox.Message {
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
