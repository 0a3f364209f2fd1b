package sqsbroker

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/postrider/postrider/internal/awsmsg"
	"github.com/postrider/postrider/outbox"
)

// PublisherConfig says where and how to publish.
type PublisherConfig struct {
	// Client is the caller's; required.
	Client *sqs.Client
	// Queue is a name, URL or ARN; required. {topic}, {key} and {type} stand
	// for the message's own: then a queue that does not exist is the
	// message's fault (permanent), otherwise everybody's (unavailable, with an
	// alarm).
	Queue string
	// Encoding of payloads. Empty: Raw.
	Encoding Encoding
	// Concurrency is the most requests that one Publish has at SQS at a time.
	// 0: 4.
	Concurrency int
	// MaxBytes lowers MaxMessageBytes and MaxBatchBytes for endpoints or
	// regions that take less. 0: the limits themselves.
	MaxBytes int
}

// Publisher sends messages to SQS. It implements outbox.Publisher.
type Publisher struct{ sender awsmsg.Sender }

var (
	_ outbox.Publisher = (*Publisher)(nil)
	_ outbox.Resolver  = (*Publisher)(nil)
)

// NewPublisher reports all problems of the configuration together. It sends
// nothing: the queue is looked up by the first Publish.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	var errs [5]error
	if cfg.Client == nil {
		errs[0] = errors.New("no client is given")
	}
	s := awsmsg.Sender{Package: "sqsbroker", Service: "SQS", Kind: "queue", Broker: newQueues(cfg.Client)}
	s.Template, errs[1] = awsmsg.NewTemplate(s.Kind, cfg.Queue, checkQueue)
	s.Encoding, errs[2] = awsmsg.CheckEncoding(cfg.Encoding)
	s.Concurrency, errs[3] = awsmsg.CheckConcurrency(cfg.Concurrency)
	switch {
	case cfg.MaxBytes < 0 || cfg.MaxBytes > MaxBatchBytes:
		errs[4] = fmt.Errorf("at most %d bytes: SQS takes 1 to %d", cfg.MaxBytes, MaxBatchBytes)
	case cfg.MaxBytes == 0:
		cfg.MaxBytes = MaxBatchBytes
	}
	s.MessageBytes, s.RequestBytes = cfg.MaxBytes, cfg.MaxBytes
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("sqsbroker: publisher: %w", err)
	}
	return &Publisher{sender: s}, nil
}

// Publish implements outbox.Publisher. One refused entry never affects its
// neighbours: each message has the answer that SQS gave to it. When SQS refuses
// a whole request for what is in it, each of its messages is sent again alone.
//
// On FIFO queues equal keys of one call are sent in their order, one after the
// other's acknowledgement. Those behind one that is to be tried again are not
// sent and get its class; a permanent failure holds nobody up.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) []outbox.Result {
	return p.sender.Publish(ctx, msgs)
}

// Destination implements outbox.Resolver: the message's queue, as the template
// gives it; empty if all messages go to one queue.
func (p *Publisher) Destination(m *outbox.Message) string { return p.sender.Template.Destination(m) }

// Send implements awsmsg.Broker.
func (q *queues) Send(ctx context.Context, url string, entries []awsmsg.Entry) (awsmsg.Answer, error) {
	in := &sqs.SendMessageBatchInput{QueueUrl: aws.String(url), Entries: make([]types.SendMessageBatchRequestEntry, len(entries))}
	sent := make(map[string]string, len(entries)) // bodies by the entry's id
	for i, e := range entries {
		id := awsmsg.EntryID(i)
		sent[*id] = e.Body
		in.Entries[i] = types.SendMessageBatchRequestEntry{
			Id: id, MessageBody: aws.String(e.Body), MessageAttributes: make(map[string]types.MessageAttributeValue, len(e.Attrs)),
		}
		for name, a := range e.Attrs {
			in.Entries[i].MessageAttributes[name] = attributeValue(a)
		}
		if e.GroupID != "" {
			in.Entries[i].MessageGroupId, in.Entries[i].MessageDeduplicationId = aws.String(e.GroupID), aws.String(e.DeduplicationID)
		}
	}
	out, err := q.client.SendMessageBatch(ctx, in, callOptions)
	if err != nil {
		return awsmsg.Answer{}, err
	}
	var answer awsmsg.Answer
	for _, ok := range out.Successful {
		s := awsmsg.Sent{ID: ok.Id, BrokerID: aws.ToString(ok.MessageId)}
		if body, known := sent[aws.ToString(ok.Id)]; known && !sameBody(body, ok.MD5OfMessageBody) {
			s.Err = fmt.Errorf("a body with the MD5 %s is not the one that was sent", *ok.MD5OfMessageBody)
		}
		answer.Sent = append(answer.Sent, s)
	}
	for _, failed := range out.Failed {
		answer.Failed = append(answer.Failed, awsmsg.Failed{ID: failed.Id, Err: entryError(failed)})
	}
	return answer, nil
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

func entryError(f types.BatchResultErrorEntry) *awsmsg.EntryError {
	return &awsmsg.EntryError{Code: aws.ToString(f.Code), Message: aws.ToString(f.Message), SenderFault: f.SenderFault}
}
