package main

import (
	"context"
	"fmt"
	"os"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/fulfilment"
)

type provisionCommand struct {
	Queue string `help:"Name of the queue of orders." default:"orders" env:"ORDERS_QUEUE"`
	Table string `help:"Name of the table of fulfilments." default:"fulfillments" env:"ORDERS_TABLE"`
}

func (c *provisionCommand) Run(ctx context.Context) error {
	aws, err := cloud.Load(ctx)
	if err != nil {
		return usage(err)
	}
	service, err := fulfilment.New(fulfilment.Config{Client: dynamodb.NewFromConfig(aws), Table: c.Table})
	if err != nil {
		return err
	}
	if err := service.Provision(ctx, sqs.NewFromConfig(aws), c.Queue); err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "queue %s (after %d receives: %s) and table %s are there\n",
		c.Queue, cloud.MaxReceives, cloud.DeadLetterQueue(c.Queue), c.Table)
	return nil
}
