// Package fulfilment is the service that reacts to new orders: it notes each of
// them in its own DynamoDB table, once, however often the event arrives. It
// shares the event's type with the order service and nothing else; above all it
// does not know that service's database.
package fulfilment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/internal/awsmsg"
	"github.com/postrider/postrider/outbox"
)

// Names that the service goes by unless it is told others.
const (
	DefaultQueue = "orders"
	DefaultTable = "fulfillments"
)

// key is the table's partition key.
const key = "orderId"

// StatusReceived is the status of a new fulfilment.
const StatusReceived = "received"

// Config is what the service needs.
type Config struct {
	// Client reaches DynamoDB. Required.
	Client *dynamodb.Client
	// Table holds the fulfilments. Default: DefaultTable.
	Table string
	// Logger reports duplicates and strange events. Default: slog.Default.
	Logger *slog.Logger
	// Handled, if set, is called after an event has been dealt with; duplicate
	// means that its fulfilment was there before.
	Handled func(e event.OrderCreated, duplicate bool)
}

// Service is the fulfilment service. It is safe for concurrent use.
type Service struct {
	client  *dynamodb.Client
	table   string
	log     *slog.Logger
	handled func(event.OrderCreated, bool)
}

// New returns the service.
func New(c Config) (*Service, error) {
	if c.Client == nil {
		return nil, errors.New("fulfilment: Config.Client is nil")
	}
	s := &Service{client: c.Client, table: c.Table, log: c.Logger, handled: c.Handled}
	if s.table == "" {
		s.table = DefaultTable
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.handled == nil {
		s.handled = func(event.OrderCreated, bool) {}
	}
	return s, nil
}

// Handle is the service's inbox.Handler. The write's own condition is its
// inbox: the order's id is the item's key, so a second copy of the event finds
// the item there and is a success. A DynamoDB that cannot be reached, throttles,
// fails, or lacks the table or the right to it is unavailable; on any other
// error the message stays in the queue and comes again; one that can never be
// decoded ends in the dead-letter queue.
func (s *Service) Handle(ctx context.Context, m outbox.Message) error {
	e, ok, err := event.Read(m)
	if err != nil {
		return fmt.Errorf("fulfilment: %w", err)
	}
	if !ok {
		s.log.DebugContext(ctx, "event of no concern", "type", m.Type, "message", m.ID)
		return nil
	}
	_, err = s.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &s.table,
		Item: map[string]types.AttributeValue{
			key:           text(e.OrderID),
			"customerId":  text(e.CustomerID),
			"amountCents": &types.AttributeValueMemberN{Value: strconv.FormatInt(e.AmountCents, 10)},
			"status":      text(StatusReceived),
			"createdAt":   text(e.CreatedAt),
		},
		ConditionExpression: aws.String("attribute_not_exists(" + key + ")"),
	})
	_, duplicate := errors.AsType[*types.ConditionalCheckFailedException](err)
	if err != nil && !duplicate {
		return awsmsg.Classify(ctx, fmt.Errorf("fulfilment: write order %s: %w", e.OrderID, err))
	}
	s.handled(e, duplicate)
	return nil
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
