package sqs_test

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/conformance"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/test/internal/awsrig"
)

func TestPublisherConforms(t *testing.T) {
	t.Run("standard", func(t *testing.T) { conformance.Publisher(t, harness("", sqsbroker.Raw)) })
	t.Run("fifo base64", func(t *testing.T) { conformance.Publisher(t, harness(".fifo", sqsbroker.Base64)) })
}

func TestConsumerConforms(t *testing.T) {
	t.Run("standard", func(t *testing.T) { conformance.Consumer(t, harness("", sqsbroker.Raw)) })
	t.Run("fifo base64", func(t *testing.T) { conformance.Consumer(t, harness(".fifo", sqsbroker.Base64)) })
}

func harness(suffix string, encoding sqsbroker.Encoding) conformance.BrokerFactory {
	return func(t testing.TB) conformance.BrokerHarness {
		r := newRig(t)
		queue := r.Queue(suffix, nil)
		h := conformance.BrokerHarness{
			Publisher:   r.publisher(sqsbroker.PublisherConfig{Queue: queue, Encoding: encoding}),
			Consumer:    func(testing.TB) inbox.Consumer { return r.Consumer(sqsbroker.ConsumerConfig{Queue: queue}) },
			OrderPerKey: suffix == ".fifo",
			Hidden:      3 * time.Second,
			MaxBytes:    sqsbroker.MaxMessageBytes - 100, // the attributes have more
			Left:        func(ctx context.Context) (int, error) { return r.Left(ctx, queue) },
			Hang:        func() func() { return r.Proxy.Add(awsproxy.Rule{Fault: awsproxy.Hang()}) },
			Poison: func(ctx context.Context) error {
				in := &sqs.SendMessageInput{
					QueueUrl: r.URL(queue), MessageBody: aws.String("{}"),
					MessageAttributes: map[string]types.MessageAttributeValue{
						"postrider-id": {DataType: aws.String("String"), StringValue: aws.String("no id at all")},
					},
				}
				if suffix == ".fifo" {
					in.MessageGroupId, in.MessageDeduplicationId = aws.String("poison"), aws.String("poison")
				}
				_, err := r.Queues.SendMessage(ctx, in)
				return err
			},
		}
		if encoding == sqsbroker.Raw {
			h.Refuses = awsrig.RefusedRaw
		} else {
			h.MaxBytes = h.MaxBytes / 4 * 3
		}
		return h
	}
}
