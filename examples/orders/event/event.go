// Package event holds the events of the shop, one type for those who publish
// them and those who read them, so that the two cannot drift apart.
package event

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/postrider/postrider/outbox"
)

const (
	// Topic is where everything about orders is announced.
	Topic = "orders"
	// TypeOrderCreated is the event type of OrderCreated.
	TypeOrderCreated = "order.created"
)

// TimeLayout is how times are written: ISO 8601 in UTC with milliseconds.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// OrderCreated announces that an order was placed.
type OrderCreated struct {
	OrderID     string `json:"orderId"`
	CustomerID  string `json:"customerId"`
	AmountCents int64  `json:"amountCents"`
	CreatedAt   string `json:"createdAt"` // TimeLayout
}

// Message wraps the event for the outbox. The key is the order's id: events of
// one order arrive in order.
func (e OrderCreated) Message() (outbox.Message, error) {
	payload, err := json.Marshal(e)
	if err != nil {
		return outbox.Message{}, fmt.Errorf("event: encode %s: %w", TypeOrderCreated, err)
	}
	return outbox.Message{Topic: Topic, Key: e.OrderID, Type: TypeOrderCreated, Payload: payload}, nil
}

// DecodeOrderCreated reads a payload. Every field must be there and make sense;
// fields that this version does not know are skipped, so that producers may add
// some. An order's id is returned in its canonical form, in which equal ids are
// equal texts. The error reports all problems together.
func DecodeOrderCreated(payload []byte) (OrderCreated, error) {
	var e OrderCreated
	if err := json.Unmarshal(payload, &e); err != nil {
		return OrderCreated{}, fmt.Errorf("event: decode %s: %w", TypeOrderCreated, err)
	}
	var errs []error
	id, err := uuid.Parse(e.OrderID)
	if err != nil {
		errs = append(errs, fmt.Errorf("orderId %q is not a UUID", e.OrderID))
	}
	e.OrderID = id.String()
	if e.CustomerID == "" {
		errs = append(errs, errors.New("customerId is missing or empty"))
	}
	if e.AmountCents <= 0 {
		errs = append(errs, fmt.Errorf("amountCents %d is not positive", e.AmountCents))
	}
	if _, err := time.Parse(time.RFC3339, e.CreatedAt); err != nil {
		errs = append(errs, fmt.Errorf("createdAt %q is not an ISO 8601 time", e.CreatedAt))
	}
	if err := errors.Join(errs...); err != nil {
		return OrderCreated{}, fmt.Errorf("event: decode %s: %w", TypeOrderCreated, err)
	}
	return e, nil
}
