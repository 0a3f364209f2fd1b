package orders

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/uuid"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/fulfilment"
	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/outbox"
)

// awsRig is an emulated AWS with a queue and a table of the test's own.
type awsRig struct {
	t            testing.TB
	server       *awsemulator.Server
	sqs          *sqs.Client
	dynamo       *dynamodb.Client
	queue, table string
	fulfilment   *fulfilment.Service
	handled      chan bool // one value for each event, true for a duplicate
}

func newAWS(t testing.TB) *awsRig {
	t.Helper()
	server := awsemulator.Start()
	t.Cleanup(server.Close)
	name := uuid.NewString()
	a := &awsRig{
		t:       t,
		server:  server,
		sqs:     sqs.NewFromConfig(server.Config()),
		dynamo:  dynamodb.NewFromConfig(server.Config()),
		queue:   "orders-" + name,
		table:   "fulfillments-" + name,
		handled: make(chan bool, 10_000),
	}
	var err error
	a.fulfilment, err = fulfilment.New(fulfilment.Config{
		Client: a.dynamo, Table: a.table, Logger: quiet(t),
		Handled: func(_ event.OrderCreated, duplicate bool) { a.handled <- duplicate },
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // safe to run again
		if err := a.fulfilment.Provision(t.Context(), a.sqs, a.queue); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func (a *awsRig) publisher() outbox.Publisher {
	a.t.Helper()
	p, err := sqsbroker.NewPublisher(sqsbroker.PublisherConfig{Client: a.sqs, Queue: a.queue})
	if err != nil {
		a.t.Fatal(err)
	}
	return p
}

// consume runs fulfilment until the test ends.
func (a *awsRig) consume() {
	a.t.Helper()
	consumer, err := sqsbroker.NewConsumer(sqsbroker.ConsumerConfig{
		Client: a.sqs, Queue: a.queue, Logger: quiet(a.t),
		WaitTime: time.Second, // the emulator's long poll does not wake for delayed messages
	})
	if err != nil {
		a.t.Fatal(err)
	}
	background(a.t, func(ctx context.Context) error { return consumer.Consume(ctx, a.fulfilment.Handle) })
}

func (a *awsRig) url(queue string) *string {
	a.t.Helper()
	out, err := a.sqs.GetQueueUrl(a.t.Context(), &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		a.t.Fatal(err)
	}
	return out.QueueUrl
}

func (a *awsRig) send(body string) {
	a.t.Helper()
	if _, err := a.sqs.SendMessage(a.t.Context(), &sqs.SendMessageInput{QueueUrl: a.url(a.queue), MessageBody: &body}); err != nil {
		a.t.Fatal(err)
	}
}

// waiting is how many messages a queue holds, received ones included.
func (a *awsRig) waiting(queue string) int {
	a.t.Helper()
	out, err := a.sqs.GetQueueAttributes(a.t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: a.url(queue), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		a.t.Fatal(err)
	}
	var visible, hidden int
	for name, n := range map[string]*int{"ApproximateNumberOfMessages": &visible, "ApproximateNumberOfMessagesNotVisible": &hidden} {
		if _, err := fmt.Sscan(out.Attributes[name], n); err != nil {
			a.t.Fatal(err)
		}
	}
	return visible + hidden
}

// receive takes one message from a queue.
func (a *awsRig) receive(queue string) types.Message {
	a.t.Helper()
	out, err := a.sqs.ReceiveMessage(a.t.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: a.url(queue), WaitTimeSeconds: 20, MessageAttributeNames: []string{"All"},
	})
	if err != nil || len(out.Messages) != 1 {
		a.t.Fatalf("received %+v, %v", out, err)
	}
	return out.Messages[0]
}

// expectFulfilled waits until each of the orders has its fulfilment, and checks
// that it is right and that there is no other.
func (a *awsRig) expectFulfilled(orders []order.Order) {
	a.t.Helper()
	var all []fulfilment.Fulfilment
	eventually(a.t, "all orders are fulfilled", func() (err error) {
		if all, err = a.fulfilment.All(a.t.Context()); err == nil && len(all) < len(orders) {
			err = fmt.Errorf("%d of %d are", len(all), len(orders))
		}
		return err
	})
	want := make(map[string]fulfilment.Fulfilment)
	for _, o := range orders {
		want[o.ID] = fulfilment.Fulfilment{OrderID: o.ID, CustomerID: o.CustomerID, AmountCents: o.AmountCents, Status: "received", CreatedAt: o.CreatedAt}
	}
	for _, got := range all {
		if got != want[got.OrderID] {
			a.t.Errorf("fulfilled %+v, ordered %+v", got, want[got.OrderID])
		}
		delete(want, got.OrderID)
	}
	if len(want) > 0 {
		a.t.Errorf("not fulfilled: %v", want)
	}
}

func TestProvision(t *testing.T) {
	a := newAWS(t)
	out, err := a.sqs.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: a.url(a.queue), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		t.Fatal(err)
	}
	dead, err := a.sqs.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: a.url(cloud.DeadLetterQueue(a.queue)), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantPolicy := fmt.Sprintf(`{"deadLetterTargetArn":"%s","maxReceiveCount":"5"}`, dead.Attributes["QueueArn"])
	if got := out.Attributes["RedrivePolicy"]; got != wantPolicy {
		t.Errorf("redrive policy %s, want %s", got, wantPolicy)
	}
	if got := dead.Attributes["MessageRetentionPeriod"]; got != "1209600" {
		t.Errorf("dead letters are kept for %s s", got)
	}
	table, err := a.dynamo.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &a.table})
	if err != nil {
		t.Fatal(err)
	}
	if keys := table.Table.KeySchema; len(keys) != 1 || aws.ToString(keys[0].AttributeName) != "orderId" || keys[0].KeyType != "HASH" {
		t.Errorf("key schema %+v", keys)
	}
	if queue := cloud.DeadLetterQueue("orders.fifo"); queue != "orders-dlq.fifo" {
		t.Errorf("dead-letter queue of a FIFO queue: %s", queue)
	}
}
