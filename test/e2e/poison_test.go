package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/uuid"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/test/internal/programs"
)

// One message among a thousand that is too large for the queue, and one that
// nobody can read.
func TestOversizeAndUndecodable(t *testing.T) {
	t.Parallel()
	const undecodable = `{"orderId":"what`
	seed := testsize.Seed(t)
	s := newShop(t, seed, pgtest.Database(t))
	s.relay()
	s.consumer()
	load := s.newLoad(testsize.Rand(seed, "load"))
	load.placeAll(499)
	oversize, err := event.OrderCreated{
		OrderID: uuid.NewString(), CustomerID: strings.Repeat("x", sqsbroker.MaxMessageBytes), AmountCents: 1, CreatedAt: "2026-07-30T20:27:10.628Z",
	}.Message()
	if err != nil {
		t.Fatal(err)
	}
	s.enqueue(oversize, outbox.Message{Topic: event.Topic, Key: "undecodable", Type: event.TypeOrderCreated, Payload: []byte(undecodable)})
	load.placeAll(499)

	s.awaitFulfilments()
	s.checkFulfilments()
	if orders, _ := s.committed(); len(orders) != 998 {
		t.Errorf("%d orders were placed", len(orders))
	}
	dead := s.queueURL(cloud.DeadLetterQueue(s.queue))
	await(t, programs.Patience, &s.broker.changed, "one message in the dead-letter queue", func() string {
		n := s.waiting(dead)
		return unless(n == "1", "there are %s", n)
	})
	out, err := s.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &dead, MaxNumberOfMessages: 10})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Messages) != 1 || aws.ToString(out.Messages[0].Body) != undecodable {
		t.Errorf("the dead-letter queue has %d messages, the first is %+v", len(out.Messages), out.Messages)
	}
	await(t, programs.Patience, &s.broker.changed, "nothing in the queue", func() string {
		n := s.waiting(s.queueURL(s.queue))
		return unless(n == "0", "there are %s", n)
	})

	await(t, programs.Patience, &s.broker.changed, "the oversize message is set aside", func() string {
		return unless(len(s.parked()) > 0, "nothing is")
	})
	parked := s.parked()
	if len(parked) != 1 {
		t.Fatalf("parked: %+v", parked)
	}
	p := parked[0]
	if p.state != string(outbox.StateFailed) || p.attempts != 1 || p.key != oversize.Key || p.bytes != len(oversize.Payload) ||
		!strings.Contains(p.failure, fmt.Sprintf("at most %d are allowed", sqsbroker.MaxMessageBytes)) {
		t.Errorf("parked: %+v", p)
	}
}

// enqueue commits messages that are no orders.
func (s *shop) enqueue(messages ...outbox.Message) {
	s.t.Helper()
	tx, err := s.data.DB.BeginTx(s.t.Context(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	if err := outbox.NewWriter(s.data.Inserter).Enqueue(s.t.Context(), tx, messages...); err != nil {
		s.t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) queueURL(queue string) string {
	s.t.Helper()
	out, err := s.sqs.GetQueueUrl(s.t.Context(), &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		s.t.Fatal(err)
	}
	return aws.ToString(out.QueueUrl)
}

// waiting is how many messages the queue has, hidden ones included.
func (s *shop) waiting(url string) string {
	s.t.Helper()
	out, err := s.sqs.GetQueueAttributes(s.t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		s.t.Fatal(err)
	}
	if hidden := out.Attributes["ApproximateNumberOfMessagesNotVisible"]; hidden != "0" {
		return out.Attributes["ApproximateNumberOfMessages"] + " and " + hidden + " hidden"
	}
	return out.Attributes["ApproximateNumberOfMessages"]
}
