package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/examples/orders/service"
	"github.com/postrider/postrider/inbox"
)

type consumeCommand struct {
	Fulfilment   fulfilmentCommand   `cmd:"" help:"Note each order in the DynamoDB table, once."`
	Notification notificationCommand `cmd:"" help:"Mail each customer that the order was taken."`
	Analytics    analyticsCommand    `cmd:"" help:"Count orders and revenue per minute and per customer, and answer GET /minutes and /customers."`
	Search       searchCommand       `cmd:"" help:"Index the orders, and answer GET /search?q=TEXT."`
}

// consumerFlags are the settings that all services have which react to orders.
type consumerFlags struct {
	Addr              string        `help:"Address to answer on: /healthz, and what the service offers; off: nowhere. Default: ${addr}; if that is taken the service goes on without." env:"ADDR" placeholder:"HOST:PORT"`
	Handlers          int           `help:"The most messages that are handled at the same time." default:"20" env:"HANDLERS"`
	Retry             time.Duration `help:"When a message comes again after it failed for the first time, in whole seconds; each further time takes four times as long." default:"${retry}" env:"RETRY"`
	WaitTime          time.Duration `help:"How long a request waits for messages, in whole seconds." default:"20s" env:"WAIT_TIME"`
	VisibilityTimeout time.Duration `help:"When messages come again after the service died, in whole seconds." default:"30s" env:"VISIBILITY_TIMEOUT"`
	Envelope          bool          `help:"The queue is subscribed to a topic without raw message delivery." env:"ENVELOPE"`
}

// Validate is called by kong.
func (c *consumerFlags) Validate() error {
	if c.Handlers < 1 {
		return errors.New("--handlers must be at least 1")
	}
	return nil
}

// readers is how many connections to PostgreSQL a service has beside those of
// its handlers.
const readers = 4

// reaction is what a service is, beside what all of them have.
type reaction struct {
	name, queue string
	addr        string // where it answers unless it is told otherwise
	handle      inbox.Handler
	api         http.Handler                // may be nil
	check       func(context.Context) error // may be nil
}

// run runs the service until ctx ends; attrs go into the log's first line.
func (c *consumerFlags) run(ctx context.Context, log *slog.Logger, cfg aws.Config, r reaction, attrs ...any) error {
	consumer, err := sqsbroker.NewConsumer(sqsbroker.ConsumerConfig{
		Client: sqs.NewFromConfig(cfg), Queue: r.queue, Envelope: c.Envelope, Logger: log,
		Handlers: c.Handlers, RetryInitial: c.Retry, WaitTime: c.WaitTime, VisibilityTimeout: c.VisibilityTimeout,
	})
	if err != nil {
		return usage(err)
	}
	listener, err := c.listen(ctx, log, r.addr)
	if err != nil {
		return usage(err)
	}
	s, err := service.New(service.Config{
		Name: r.name, Consumer: consumer, Handle: r.handle, Listener: listener, API: r.api, Check: r.check, Logger: log,
	})
	if err != nil {
		return err
	}
	attrs = append(attrs, "queue", r.queue)
	if listener != nil {
		attrs = append(attrs, "url", "http://"+listener.Addr().String())
	}
	log.InfoContext(ctx, r.name+" started", attrs...)
	err = s.Run(ctx)
	log.Info(r.name + " stopped")
	return err
}

// off is the address of a service that answers nowhere.
const off = "off"

// listen returns nil if the service answers nowhere.
func (c *consumerFlags) listen(ctx context.Context, log *slog.Logger, standard string) (net.Listener, error) {
	if c.Addr == off {
		return nil, nil
	}
	listener, err := net.Listen("tcp", cmp.Or(c.Addr, standard))
	if err != nil && c.Addr == "" {
		log.WarnContext(ctx, "the default address is taken: the service answers nowhere; set one with --addr", "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: choose another address with --addr, or off", err)
	}
	return listener, nil
}
