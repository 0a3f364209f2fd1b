package main

import (
	"context"
	"log/slog"

	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/fulfilment"
)

// fulfilmentNames are the names that the parts of fulfilment must agree on.
type fulfilmentNames struct {
	Queue string `help:"Name, URL or ARN of the queue of orders." default:"orders" env:"ORDERS_QUEUE"`
	Table string `help:"Name of the table of fulfilments." default:"fulfillments" env:"ORDERS_TABLE"`
}

type fulfilmentCommand struct {
	fulfilmentNames
	//lint:ignore SA5008 kong takes several values of set
	consumerFlags `embed:"" envprefix:"ORDERS_FULFILMENT_" set:"addr=127.0.0.1:3001" set:"retry=1s"`
}

func (c *fulfilmentCommand) Run(ctx context.Context, log *slog.Logger) error {
	aws, err := cloud.Load(ctx)
	if err != nil {
		return usage(err)
	}
	s, err := fulfilment.New(fulfilment.Config{Client: cloud.DynamoDB(aws), Table: c.Table, Logger: log})
	if err != nil {
		return err
	}
	return c.run(ctx, log, aws, reaction{name: "fulfilment", queue: c.Queue, addr: "127.0.0.1:3001", handle: s.Handle}, "table", c.Table)
}
