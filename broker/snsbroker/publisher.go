package snsbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/postrider/postrider/internal/awsbody"
	"github.com/postrider/postrider/internal/awsmsg"
	"github.com/postrider/postrider/outbox"
)

// Limits of SNS.
const (
	// DefaultMaxBytes is the most that one message, and all messages of one
	// request together, may have while a topic's attribute MaximumMessageSize
	// is not set: body and, of every attribute, name, type and value.
	// MaxMessageBytes is the most that the attribute can be set to.
	// https://docs.aws.amazon.com/sns/latest/api/API_PublishBatch.html
	// https://docs.aws.amazon.com/sns/latest/dg/large-message-payloads.html
	DefaultMaxBytes = 256 << 10
	MaxMessageBytes = 1 << 20

	// MaxBatch is the most messages of one request, MaxAttributes the most
	// attributes of one message that reach a queue with raw message delivery.
	MaxBatch      = awsmsg.MaxBatch
	MaxAttributes = awsmsg.MaxAttributes
)

// Encoding says how a payload becomes a message.
type Encoding = awsmsg.Encoding

const (
	Raw    = awsmsg.Raw    // the payload is the message
	Base64 = awsmsg.Base64 // for payloads that are not text: standard base64
)

// PublisherConfig says where and how to publish.
type PublisherConfig struct {
	// Client is the caller's; required.
	Client *sns.Client
	// Topic is a name or ARN; required. {topic}, {key} and {type} stand for
	// the message's own: then a topic that does not exist is the message's
	// fault (permanent), otherwise everybody's (unavailable, with an alarm).
	Topic string
	// STS tells the account of a Topic that is given by name, which the first
	// Publish asks for; it is not needed for an ARN. The caller's.
	STS *sts.Client
	// Encoding of payloads. Empty: Raw.
	Encoding Encoding
	// Concurrency is the most requests that one Publish has at SNS at a time.
	// 0: 4.
	Concurrency int
	// MaxBytes is the topic's MaximumMessageSize, for messages and requests
	// alike, up to MaxMessageBytes. 0: requests of several messages have at
	// most DefaultMaxBytes; a message that has more goes alone, and fails as
	// permanent if the topic does not take it.
	MaxBytes int
}

// Publisher sends messages to SNS. It implements outbox.Publisher.
type Publisher struct{ sender awsmsg.Sender }

var (
	_ outbox.Publisher = (*Publisher)(nil)
	_ outbox.Resolver  = (*Publisher)(nil)
)

// NewPublisher reports all problems of the configuration together. It sends
// nothing.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	var errs [6]error
	t := &topics{client: cfg.Client, account: account{sts: cfg.STS}}
	if cfg.Client == nil {
		errs[0] = errors.New("no client is given")
	} else {
		t.region = cfg.Client.Options().Region
	}
	s := awsmsg.Sender{Package: "snsbroker", Service: "SNS", Kind: "topic", Broker: t}
	s.Template, errs[1] = awsmsg.NewTemplate(s.Kind, cfg.Topic, checkTopic)
	if errs[1] == nil && cfg.STS == nil && !isARN(cfg.Topic) {
		errs[2] = fmt.Errorf("topic %q is a name: give its ARN, or a client of STS to learn the account", cfg.Topic)
	}
	s.Encoding, errs[3] = awsmsg.CheckEncoding(cfg.Encoding)
	s.Concurrency, errs[4] = awsmsg.CheckConcurrency(cfg.Concurrency)
	switch {
	case cfg.MaxBytes < 0 || cfg.MaxBytes > MaxMessageBytes:
		errs[5] = fmt.Errorf("at most %d bytes: SNS takes 1 to %d", cfg.MaxBytes, MaxMessageBytes)
	case cfg.MaxBytes == 0:
		s.MessageBytes, s.RequestBytes = MaxMessageBytes, DefaultMaxBytes
	default:
		s.MessageBytes, s.RequestBytes = cfg.MaxBytes, cfg.MaxBytes
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("snsbroker: publisher: %w", err)
	}
	return &Publisher{sender: s}, nil
}

// Publish implements outbox.Publisher. One refused entry never affects its
// neighbours: each message has the answer that SNS gave to it. When SNS refuses
// a whole request for what is in it, each of its messages is sent again alone.
// Acknowledged means that SNS has stored the message; what becomes of it at each
// subscription is SNS's, whose dead-letter queues are set there.
//
// On FIFO topics equal keys of one call are sent in their order, one after the
// other's acknowledgement. Those behind one that is to be tried again are not
// sent and get its class; a permanent failure holds nobody up.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) []outbox.Result {
	return p.sender.Publish(ctx, msgs)
}

// Destination implements outbox.Resolver: the message's topic, as the template
// gives it; empty if all messages go to one topic.
func (p *Publisher) Destination(m *outbox.Message) string { return p.sender.Template.Destination(m) }

// topics sends to topics.
type topics struct {
	account
	client *sns.Client
}

// Send implements awsmsg.Broker.
func (t *topics) Send(ctx context.Context, topic string, entries []awsmsg.Entry) (awsmsg.Answer, error) {
	in := &sns.PublishBatchInput{TopicArn: aws.String(topic), PublishBatchRequestEntries: make([]types.PublishBatchRequestEntry, len(entries))}
	for i, e := range entries {
		entry := &in.PublishBatchRequestEntries[i]
		entry.Id, entry.Message = awsmsg.EntryID(i), aws.String(e.Body)
		entry.MessageAttributes = make(map[string]types.MessageAttributeValue, len(e.Attrs))
		for name, a := range e.Attrs {
			entry.MessageAttributes[name] = attributeValue(a)
		}
		if e.GroupID != "" {
			entry.MessageGroupId, entry.MessageDeduplicationId = aws.String(e.GroupID), aws.String(e.DeduplicationID)
		}
	}
	out, err := t.client.PublishBatch(ctx, in, func(o *sns.Options) {
		o.HTTPClient = awsbody.Wrap(o.HTTPClient)
		if a, err := arn.Parse(topic); err == nil {
			o.Region = a.Region // the only one that knows the topic
		}
	})
	if err != nil {
		return awsmsg.Answer{}, aboutTopic(err)
	}
	var answer awsmsg.Answer
	for _, ok := range out.Successful {
		answer.Sent = append(answer.Sent, awsmsg.Sent{ID: ok.Id, BrokerID: aws.ToString(ok.MessageId)})
	}
	for _, failed := range out.Failed {
		answer.Failed = append(answer.Failed, awsmsg.Failed{ID: failed.Id, Err: &awsmsg.EntryError{
			Code: aws.ToString(failed.Code), Message: aws.ToString(failed.Message), SenderFault: failed.SenderFault,
		}})
	}
	return answer, nil
}

// aboutTopic: SNS calls a topic of another region or partition an invalid
// parameter, and which one it is stands in the text alone.
func aboutTopic(err error) error {
	api, ok := errors.AsType[smithy.APIError](err)
	if ok && api.ErrorCode() == "InvalidParameter" && strings.Contains(api.ErrorMessage(), "TopicArn") {
		return awsmsg.Missing(err)
	}
	return err
}

func attributeValue(a awsmsg.Attribute) types.MessageAttributeValue {
	v := types.MessageAttributeValue{DataType: aws.String(a.DataType())}
	if a.Binary {
		v.BinaryValue = []byte(a.Value)
	} else {
		v.StringValue = aws.String(a.Value)
	}
	return v
}
