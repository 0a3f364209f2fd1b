package sns_test

import (
	"context"
	"regexp"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/postrider/postrider/broker/snsbroker"
	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/conformance"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
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

// What SNS takes, as its documentation has it.
var taken = regexp.MustCompile(`^[\x{9}\x{A}\x{D}\x{20}-\x{D7FF}\x{E000}-\x{FFFD}\x{10000}-\x{10FFFF}]*$`)

func refusedRaw(m outbox.Message) bool {
	for _, s := range []string{string(m.Payload), m.Topic, m.Key, m.Type, m.ContentType} {
		if !utf8.ValidString(s) || !taken.MatchString(s) {
			return true
		}
	}
	return len(m.Payload) == 0
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
				return r.consumer(sqsbroker.ConsumerConfig{Queue: queue, Envelope: !raw, VisibilityTimeout: hidden})
			},
			OrderPerKey: suffix == ".fifo",
			Hidden:      hidden,
			Left:        func(ctx context.Context) (int, error) { return r.left(ctx, queue) },
			Hang:        func() func() { return r.proxy.Add(awsproxy.Rule{Fault: awsproxy.Hang()}) },
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
			h.Refuses, h.MaxBytes = refusedRaw, snsbroker.DefaultMaxBytes-100 // the attributes have more
		} else {
			h.MaxBytes = (snsbroker.MaxMessageBytes - 100) / 4 * 3
		}
		return h
	}
}
