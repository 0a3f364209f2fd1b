package main

import (
	"context"
	"log/slog"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/fulfilment"
)

type consumeCommand struct {
	Fulfilment fulfilmentCommand `cmd:"" help:"Note each order in the DynamoDB table, once."`
}

// fulfilmentNames are the names that the parts of fulfilment must agree on.
type fulfilmentNames struct {
	Queue string `help:"Name, URL or ARN of the queue of orders." default:"orders" env:"ORDERS_QUEUE"`
	Table string `help:"Name of the table of fulfilments." default:"fulfillments" env:"ORDERS_TABLE"`
}

type fulfilmentCommand struct{ fulfilmentNames }

func (c *fulfilmentCommand) Run(ctx context.Context, log *slog.Logger) error {
	aws, err := cloud.Load(ctx)
	if err != nil {
		return usage(err)
	}
	service, err := fulfilment.New(fulfilment.Config{Client: dynamodb.NewFromConfig(aws), Table: c.Table, Logger: log})
	if err != nil {
		return err
	}
	consumer, err := sqsbroker.NewConsumer(sqsbroker.ConsumerConfig{
		Client: sqs.NewFromConfig(aws), Queue: c.Queue, Logger: log,
	})
	if err != nil {
		return usage(err)
	}
	log.InfoContext(ctx, "fulfilment started", "queue", c.Queue, "table", c.Table)
	err = consumer.Consume(ctx, service.Handle)
	log.Info("fulfilment stopped")
	return err
}
