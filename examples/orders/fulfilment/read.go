package fulfilment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// ErrNone means that there is no such fulfilment (yet).
var ErrNone = errors.New("there is no fulfilment")

// Fulfilment is one item of the table.
type Fulfilment struct {
	OrderID     string `json:"orderId"`
	CustomerID  string `json:"customerId"`
	AmountCents int64  `json:"amountCents"`
	Status      string `json:"status"`
	CreatedAt   string `json:"createdAt"` // when the order was placed; event.TimeLayout
}

// Find reads the fulfilment of an order, with a consistent read; ErrNone if
// there is none.
func (s *Service) Find(ctx context.Context, orderID string) (Fulfilment, error) {
	found, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      &s.table,
		Key:            map[string]types.AttributeValue{key: text(orderID)},
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return Fulfilment{}, fmt.Errorf("fulfilment: read order %s: %w", orderID, err)
	}
	if found.Item == nil {
		return Fulfilment{}, ErrNone
	}
	return decode(found.Item)
}

// All reads the whole table, in no order. It is meant for small ones, such as
// the demo's.
func (s *Service) All(ctx context.Context) ([]Fulfilment, error) {
	var all []Fulfilment
	pages := dynamodb.NewScanPaginator(s.client, &dynamodb.ScanInput{TableName: &s.table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("fulfilment: read table %q: %w", s.table, err)
		}
		for _, item := range page.Items {
			f, err := decode(item)
			if err != nil {
				return nil, err
			}
			all = append(all, f)
		}
	}
	return all, nil
}

// Newest is the fulfilment of the order that was placed last; ErrNone if there
// is none. It reads the whole table.
func (s *Service) Newest(ctx context.Context) (Fulfilment, error) {
	all, err := s.All(ctx)
	if err != nil {
		return Fulfilment{}, err
	}
	if len(all) == 0 {
		return Fulfilment{}, ErrNone
	}
	return slices.MaxFunc(all, func(a, b Fulfilment) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.OrderID, b.OrderID))
	}), nil
}

func decode(item map[string]types.AttributeValue) (Fulfilment, error) {
	read := func(name string) string {
		switch v := item[name].(type) {
		case *types.AttributeValueMemberS:
			return v.Value
		case *types.AttributeValueMemberN:
			return v.Value
		}
		return ""
	}
	amount, err := strconv.ParseInt(read("amountCents"), 10, 64)
	if err != nil {
		return Fulfilment{}, fmt.Errorf("fulfilment: the item of order %q has no whole amountCents: %w", read(key), err)
	}
	return Fulfilment{
		OrderID:     read(key),
		CustomerID:  read("customerId"),
		AmountCents: amount,
		Status:      read("status"),
		CreatedAt:   read("createdAt"),
	}, nil
}
