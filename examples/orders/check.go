package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/fulfilment"
)

// checkInterval is the pause between two looks.
const checkInterval = 200 * time.Millisecond

type checkCommand struct {
	OrderID string        `arg:"" optional:"" name:"ORDER_ID" help:"Id of the order; without it the newest order that was fulfilled is shown."`
	Table   string        `help:"Name of the table of fulfilments." default:"fulfillments" env:"ORDERS_TABLE"`
	Timeout time.Duration `help:"How long to wait for the fulfilment." default:"10s"`
}

func (c *checkCommand) Run(ctx context.Context) error {
	aws, err := cloud.Load(ctx)
	if err != nil {
		return usage(err)
	}
	service, err := fulfilment.New(fulfilment.Config{Client: cloud.DynamoDB(aws), Table: c.Table})
	if err != nil {
		return err
	}
	found, err := c.await(ctx, service)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(found)
}

// await looks until the fulfilment is there or the time is over.
func (c *checkCommand) await(ctx context.Context, service *fulfilment.Service) (fulfilment.Fulfilment, error) {
	look := func() (fulfilment.Fulfilment, error) { return service.Find(ctx, c.OrderID) }
	what := "of order " + c.OrderID
	if c.OrderID == "" {
		look = func() (fulfilment.Fulfilment, error) { return service.Newest(ctx) }
		what = "of any order"
	}
	end := time.Now().Add(c.Timeout)
	for {
		found, err := look()
		if !errors.Is(err, fulfilment.ErrNone) {
			return found, err
		}
		if time.Now().After(end) {
			return found, fmt.Errorf("%w %s in table %q after %s: is the order's id right, are `postrider relay` and `orders consume fulfilment` running?",
				err, what, c.Table, c.Timeout)
		}
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-time.After(checkInterval):
		}
	}
}
