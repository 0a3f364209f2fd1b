package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/fulfilment"
)

type provisionCommand struct {
	Topic  string   `help:"Name of the topic that orders are announced on." default:"orders" env:"ORDERS_TOPIC"`
	Queue  string   `help:"Name of fulfilment's queue." default:"orders" env:"ORDERS_QUEUE"`
	Others []string `help:"Names of the other services' queues." default:"notifications,analytics,search" env:"ORDERS_OTHER_QUEUES"`
	Table  string   `help:"Name of the table of fulfilments." default:"fulfillments" env:"ORDERS_TABLE"`
	Plain  bool     `help:"Without a topic: only fulfilment's queue, to which the relay sends directly." env:"ORDERS_PLAIN"`
}

func (c *provisionCommand) Run(ctx context.Context) error {
	aws, err := cloud.Load(ctx)
	if err != nil {
		return usage(err)
	}
	queues := sqs.NewFromConfig(aws)
	service, err := fulfilment.New(fulfilment.Config{Client: cloud.DynamoDB(aws), Table: c.Table})
	if err != nil {
		return err
	}
	if err := service.Provision(ctx, queues, c.Queue); err != nil {
		return err
	}
	if c.Plain {
		c.print("%s and table %s are there", c.describe(c.Queue), c.Table)
		c.print("Send orders to it with `postrider relay --to sqs://%s`.", c.Queue)
		return nil
	}
	all := append([]string{c.Queue}, c.Others...)
	topic, err := cloud.EnsureFanOut(ctx, sns.NewFromConfig(aws), queues, c.Topic, all...)
	if err != nil {
		return err
	}
	described := make([]string, len(all))
	for i, name := range all {
		described[i] = c.describe(name)
	}
	c.print("topic %s, its %s, and table %s are there", topic, strings.Join(described, ", "), c.Table)
	c.print("Send orders to it with `postrider relay --to sns://%s`.", c.Topic)
	return nil
}

func (c *provisionCommand) describe(queue string) string {
	return fmt.Sprintf("queue %s (after %d receives: %s)", queue, cloud.MaxReceives, cloud.DeadLetterQueue(queue))
}

func (c *provisionCommand) print(format string, args ...any) {
	fmt.Fprintf(os.Stdout, format+"\n", args...)
}
