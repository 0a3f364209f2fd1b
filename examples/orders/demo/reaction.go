package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/demo/journal"
	"github.com/postrider/postrider/examples/orders/fulfilment"
	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/examples/orders/service"
	"github.com/postrider/postrider/inbox"
)

// reaction is one of the services that react to orders.
type reaction struct {
	name  string // "fulfilment"
	title string // "Fulfilment"
	unit  string // what it stores, after a number: "fulfilments"
	one   string // one of them
	row   string // what the report calls that
	queue string
	store string // where it stores them, for people
	// handle is the service's own.
	handle inbox.Handler
	// total is how many orders the service's own data has.
	total func(context.Context) (int, error)
	// audit compares the service's own data with the orders.
	audit func(context.Context, []order.Order) (audit, error)
	// close frees what it has. nil: nothing.
	close func() error

	service *service.Service
}

// audit is what a service's own data says about the orders.
type audit struct {
	total   int
	missing []string // orders that it lacks
	wrong   []string // what differs from its order, or belongs to none, or is there twice
}

// Timing of the demo's consumers.
const (
	// pollWait is short because the emulator does not wake a request for
	// messages when a retry is due.
	pollWait = time.Second
	// hiddenFor is how soon messages come again whose answer was lost.
	hiddenFor = 10 * time.Second
)

// start makes the service that hands the messages of the queue to the handler,
// seen by the journal.
func (r *reaction) start(client *sqs.Client, index int, j *journal.Journal, log *slog.Logger) error {
	consumer, err := sqsbroker.NewConsumer(sqsbroker.ConsumerConfig{
		Client: client, Queue: r.queue, Logger: log, WaitTime: pollWait, VisibilityTimeout: hiddenFor,
	})
	if err != nil {
		return err
	}
	r.service, err = service.New(service.Config{
		Name: r.name, Consumer: watchedConsumer{consumer, index, j}, Handle: r.handle, Logger: log,
	})
	return err
}

// watchedConsumer lets the journal see what comes from a queue.
type watchedConsumer struct {
	inbox.Consumer
	index   int
	journal *journal.Journal
}

func (c watchedConsumer) Consume(ctx context.Context, handle inbox.Handler) error {
	return c.Consumer.Consume(ctx, c.journal.Watch(c.index, handle))
}

// depth is how many messages a queue and its dead-letter queue have.
type depth struct{ waiting, dead int }

func (r *reaction) depth(ctx context.Context, client *sqs.Client) (d depth, err error) {
	if d.waiting, err = messages(ctx, client, r.queue); err != nil {
		return d, err
	}
	d.dead, err = messages(ctx, client, cloud.DeadLetterQueue(r.queue))
	return d, err
}

// messages counts those that wait, those that a service has in hand, and those
// that are to come again later.
func messages(ctx context.Context, client *sqs.Client, queue string) (int, error) {
	url, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		return 0, fmt.Errorf("look up queue %q: %w", queue, err)
	}
	names := []sqstypes.QueueAttributeName{
		sqstypes.QueueAttributeNameApproximateNumberOfMessages,
		sqstypes.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		sqstypes.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	}
	found, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: url.QueueUrl, AttributeNames: names})
	if err != nil {
		return 0, fmt.Errorf("count the messages of queue %q: %w", queue, err)
	}
	sum := 0
	for _, name := range names {
		n, err := strconv.Atoi(found.Attributes[string(name)])
		if err != nil {
			return 0, fmt.Errorf("count the messages of queue %q: %s: %w", queue, name, err)
		}
		sum += n
	}
	return sum, nil
}

// newFulfilment makes fulfilment, with its queue and table.
func newFulfilment(ctx context.Context, p *peers, log *slog.Logger) (*reaction, error) {
	s, err := fulfilment.New(fulfilment.Config{Client: p.dynamo, Logger: log})
	if err != nil {
		return nil, err
	}
	if err := s.Provision(ctx, p.queues, fulfilment.DefaultQueue); err != nil {
		return nil, err
	}
	return &reaction{
		name: "fulfilment", title: "Fulfilment", unit: "fulfilments", one: "fulfilment", row: "fulfilments",
		queue: fulfilment.DefaultQueue, store: "DynamoDB",
		handle: s.Handle,
		total:  func(ctx context.Context) (int, error) { return items(ctx, p.dynamo, fulfilment.DefaultTable) },
		audit: func(ctx context.Context, orders []order.Order) (audit, error) {
			all, err := s.All(ctx)
			if err != nil {
				return audit{}, err
			}
			return compare(orders, all), nil
		},
	}, nil
}

// items counts those of a table.
func items(ctx context.Context, client *dynamodb.Client, table string) (int, error) {
	n := 0
	pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{
		TableName: &table, Select: types.SelectCount, ConsistentRead: aws.Bool(true),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return 0, fmt.Errorf("count the items of table %q: %w", table, err)
		}
		n += int(page.Count)
	}
	return n, nil
}

// compare finds what fulfilment lacks, and what it has that it should not.
func compare(orders []order.Order, fulfilments []fulfilment.Fulfilment) audit {
	a := audit{total: len(fulfilments)}
	byOrder := make(map[string]fulfilment.Fulfilment, len(fulfilments))
	for _, f := range fulfilments {
		byOrder[f.OrderID] = f
	}
	for _, o := range orders {
		want := fulfilment.Fulfilment{
			OrderID:     o.ID,
			CustomerID:  o.CustomerID,
			AmountCents: o.AmountCents,
			Status:      fulfilment.StatusReceived,
			CreatedAt:   o.CreatedAt,
		}
		got, ok := byOrder[o.ID]
		switch {
		case !ok:
			a.missing = append(a.missing, o.ID)
		case got != want:
			a.wrong = append(a.wrong, fmt.Sprintf("%s: ordered %+v, fulfilled %+v", o.ID, want, got))
		}
		delete(byOrder, o.ID)
	}
	for id := range byOrder {
		a.wrong = append(a.wrong, id+": there is no such order")
	}
	return a
}

// closeAll closes what the services have.
func closeAll(reactions []*reaction) error {
	var errs []error
	for _, r := range reactions {
		if r.close != nil {
			errs = append(errs, r.close())
		}
	}
	return errors.Join(errs...)
}
