package sns_test

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/postrider/postrider/broker/snsbroker"
	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/conformance"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/test/internal/awsrig"
)

// A busy machine may take its time over large messages, which must not come
// again meanwhile; the consumers' suite waits for messages to come again.
const (
	patient   = 20 * time.Second
	impatient = 3 * time.Second
)

func TestPublisherConforms(t *testing.T) {
	t.Run("standard", func(t *testing.T) { conformance.Publisher(t, harness("", snsbroker.Raw, true, patient)) })
	t.Run("fifo base64", func(t *testing.T) { conformance.Publisher(t, harness(".fifo", snsbroker.Base64, true, patient)) })
	t.Run("envelope", func(t *testing.T) { conformance.Publisher(t, harness("", snsbroker.Raw, false, patient)) })
}

func TestConsumerConforms(t *testing.T) {
	t.Run("standard", func(t *testing.T) { conformance.Consumer(t, harness("", snsbroker.Raw, true, impatient)) })
	t.Run("fifo base64", func(t *testing.T) { conformance.Consumer(t, harness(".fifo", snsbroker.Base64, true, impatient)) })
}

// harness is a topic with one queue. With base64 the topic has the largest
// limit that SNS allows, otherwise the one that it has unasked.
func harness(suffix string, encoding snsbroker.Encoding, raw bool, hidden time.Duration) conformance.BrokerFactory {
	return func(t testing.TB) conformance.BrokerHarness {
		r := newRig(t)
		attributes := map[string]string{}
		if encoding == snsbroker.Base64 {
			attributes["MaximumMessageSize"] = "1048576"
		}
		topic, arn := r.topic(suffix, attributes)
		queue := r.queue(arn, raw)
		h := conformance.BrokerHarness{
			Publisher: r.publisher(snsbroker.PublisherConfig{Topic: topic, Encoding: encoding}),
			Consumer: func(testing.TB) inbox.Consumer {
				return r.Consumer(sqsbroker.ConsumerConfig{Queue: queue, Envelope: !raw, VisibilityTimeout: hidden})
			},
			OrderPerKey: suffix == ".fifo",
			Hidden:      hidden,
			Left:        func(ctx context.Context) (int, error) { return r.Left(ctx, queue) },
			Hang:        func() func() { return r.Proxy.Add(awsproxy.Rule{Fault: awsproxy.Hang()}) },
			Poison: func(ctx context.Context) error {
				in := &sns.PublishInput{
					TopicArn: aws.String(arn), Message: aws.String("{}"),
					MessageAttributes: map[string]types.MessageAttributeValue{
						"postrider-id": {DataType: aws.String("String"), StringValue: aws.String("no id at all")},
					},
				}
				if suffix == ".fifo" {
					in.MessageGroupId, in.MessageDeduplicationId = aws.String("poison"), aws.String("poison")
				}
				_, err := r.topics.Publish(ctx, in)
				return err
			},
		}
		if encoding == snsbroker.Raw {
			h.Refuses, h.MaxBytes = awsrig.RefusedRaw, snsbroker.DefaultMaxBytes-100 // the attributes have more
		} else {
			h.MaxBytes = (snsbroker.MaxMessageBytes - 100) / 4 * 3
		}
		return h
	}
}
