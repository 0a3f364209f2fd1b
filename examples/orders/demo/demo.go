// Package demo runs the whole shop in one process: order service, relay,
// fulfilment, a database and an AWS emulator.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/fulfilment"
	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/examples/orders/web"
	"github.com/postrider/postrider/relay"
)

// Options of a run.
type Options struct {
	// Addr of the order service. Default: 127.0.0.1:3000, with Exit a free port
	// of the loopback interface.
	Addr string
	// Orders is how many orders to place at the start.
	Orders int
	// Exit ends the run once every order is fulfilled, or nothing has moved
	// for Patience; otherwise it goes on until the context ends.
	Exit     bool
	Patience time.Duration // default 30 s
	// Postgres is the URL of a PostgreSQL database to use, or "auto" for a
	// server of the demo's own. Empty: SQLite.
	Postgres string
	// Keep is the folder in which all data is kept for the next run. Empty: a
	// temporary one, removed at the end.
	Keep string
	// Out gets what the demo has to say; Logger what goes wrong inside.
	Out    io.Writer
	Logger *slog.Logger
}

const (
	defaultAddr     = "127.0.0.1:3000"
	anyPort         = "127.0.0.1:0"
	defaultPatience = 30 * time.Second
	relayPoll       = 5 * time.Millisecond
)

// Run runs the demo. The error is a *Finding if the run went well and its
// result did not. It may replace the process by itself, to start it with
// another environment, so nothing should have been started before.
func Run(ctx context.Context, o Options) error {
	if o.Addr == "" {
		o.Addr = defaultAddr
		if o.Exit {
			o.Addr = anyPort
		}
	}
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	place, err := open(o)
	if err != nil {
		return err
	}
	s, err := assemble(ctx, o, place)
	if err != nil {
		return errors.Join(err, place.close())
	}
	err = s.run(ctx)
	return errors.Join(err, s.close(), place.close())
}

// shop is everything that runs.
type shop struct {
	Options
	peers    *peers
	listener net.Listener
	orders   *order.Service
	relay    *relay.Relay
	shards   int // of the outbox
	fulfil   *fulfilment.Service
	ledger   *ledger
}

func assemble(ctx context.Context, o Options, f *folder) (*shop, error) {
	s := &shop{Options: o, ledger: newLedger()}
	var err error
	if s.listener, err = net.Listen("tcp", o.Addr); err != nil {
		return nil, &SetupError{err, "choose another address with --addr (127.0.0.1:0 takes a free port)"}
	}
	if s.peers, err = startPeers(ctx, o, f); err != nil {
		return nil, errors.Join(err, s.listener.Close())
	}
	if err := s.build(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// build makes the parts on top of the peers.
func (s *shop) build(ctx context.Context) (err error) {
	s.orders, err = order.New(order.Config{
		DB:        s.peers.db.DB,
		Inserter:  s.peers.db.Inserter,
		Logger:    s.Logger,
		Committed: func(placed order.Order) { s.ledger.commit(placed.ID) },
	})
	if err != nil {
		return err
	}
	s.fulfil, err = fulfilment.New(fulfilment.Config{
		Client: s.peers.dynamo,
		Logger: s.Logger,
		Handled: func(e event.OrderCreated, duplicate bool) {
			took, known := s.ledger.fulfil(e.OrderID, duplicate)
			if known && !s.Exit {
				fmt.Fprintf(s.Out, "  order %s of %s: fulfilled %s after its commit\n", e.OrderID, e.CustomerID, milliseconds(took))
			}
		},
	})
	if err != nil {
		return err
	}
	if err := s.fulfil.Provision(ctx, s.peers.queues, fulfilment.DefaultQueue); err != nil {
		return err
	}
	s.relay, s.shards, err = s.peers.newRelay(ctx, s.Logger)
	return err
}

// SetupError means that the demo cannot start as it was told to: its address or
// its folder is in use.
type SetupError struct {
	err  error
	hint string
}

func (e *SetupError) Error() string { return e.err.Error() + ": " + e.hint }
func (e *SetupError) Unwrap() error { return e.err }

// run runs everything until the context ends or, with Exit, the work is done.
// The parts stop in the order in which messages flow, so that each can finish
// what it was given.
func (s *shop) run(ctx context.Context) error {
	s.introduce()
	consumer, err := s.peers.newConsumer(s.Logger)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	run := func(part func(context.Context) error) (stop func()) {
		partCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		group.Go(func() error {
			defer close(done)
			return part(partCtx)
		})
		return func() { cancel(); <-done }
	}
	stopConsumer := run(func(ctx context.Context) error { return consumer.Consume(ctx, s.fulfil.Handle) })
	stopRelay := run(s.relay.Run)
	stopServer := run(func(ctx context.Context) error {
		return web.Serve(ctx, s.listener, s.orders.Handler(), s.Logger)
	})
	var result report
	finished := false
	group.Go(func() (err error) {
		defer func() {
			stopServer()
			stopRelay()
			stopConsumer()
		}()
		if result, err = s.work(ctx); errors.Is(err, context.Canceled) {
			return nil // stopped by a signal, or another part's error is the cause
		}
		finished = err == nil
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	switch {
	case !s.Exit:
		return nil
	case !finished:
		return &Finding{text: "stopped before it was known whether every order is fulfilled"}
	}
	return result.err()
}

// work places the orders and, with Exit, waits and reports; otherwise it waits
// for the context's end.
func (s *shop) work(ctx context.Context) (report, error) {
	if err := s.awaitRelay(ctx); err != nil {
		return report{}, err
	}
	if s.Orders > 0 {
		begin := time.Now()
		if err := place(ctx, s.url(), s.Orders); err != nil {
			return report{}, err
		}
		fmt.Fprintf(s.Out, "\n%d orders placed over HTTP in %s, %d at a time.\n", s.Orders, time.Since(begin).Round(time.Millisecond), placers)
	}
	if !s.Exit {
		<-ctx.Done()
		fmt.Fprintln(s.Out, "\nstopping")
		return report{}, ctx.Err()
	}
	result, err := s.settle(ctx)
	if err == nil {
		fmt.Fprintln(s.Out)
		result.print(s.Out)
	}
	return result, err
}

// awaitRelay waits until the relay has taken all shards, so that the delays
// that the demo reports are those of a running system.
func (s *shop) awaitRelay(ctx context.Context) error {
	tick := time.NewTicker(relayPoll)
	defer tick.Stop()
	for {
		if stats := s.relay.Stats(); len(stats.Routes) == 1 && stats.Routes[0].ShardsHeld == s.shards {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// settle waits until every order, those of earlier runs too, is fulfilled, or
// nothing moves any more.
func (s *shop) settle(ctx context.Context) (report, error) {
	patience := time.NewTimer(s.Patience)
	defer patience.Stop()
	_, before, _ := s.ledger.progress()
	for {
		open, fulfilled, changed := s.ledger.progress()
		if fulfilled != before {
			before = fulfilled
			patience.Reset(s.Patience)
		}
		if open == 0 {
			if r, err := s.look(ctx); err != nil || r.err() == nil {
				return r, err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return report{}, ctx.Err()
		case <-patience.C:
			return s.look(ctx)
		}
	}
}

// look compares both sides as they are now.
func (s *shop) look(ctx context.Context) (report, error) {
	orders, err := order.List(ctx, s.peers.db.DB)
	if err != nil {
		return report{}, err
	}
	fulfilments, err := s.fulfil.All(ctx)
	if err != nil {
		return report{}, err
	}
	r := compare(orders, fulfilments)
	r.delays, r.duplicates = s.ledger.delays()
	return r, nil
}

func (s *shop) url() string { return "http://" + s.listener.Addr().String() }

func (s *shop) introduce() {
	say := func(format string, args ...any) { fmt.Fprintf(s.Out, format+"\n", args...) }
	say("A shop in one process. Each order commits together with the event that announces it;")
	say("a relay sends the event to SQS; fulfilment notes the order in DynamoDB, once.")
	say("")
	say("  orders      %s", s.url())
	say("  database    %s", s.peers.where)
	say("  relay       topic %s → SQS queue %s", event.Topic, fulfilment.DefaultQueue)
	say("  fulfilment  SQS queue %s → DynamoDB table %s", fulfilment.DefaultQueue, fulfilment.DefaultTable)
	say("  AWS         emulated at %s", s.peers.aws.Endpoint)
	say("  data        %s", s.peers.folder)
	if s.Exit {
		return
	}
	say("")
	say("Place an order:")
	say("  curl -sS %s/orders -H 'Content-Type: application/json' -d '{\"customerId\":\"c1\",\"amountCents\":4999}'", s.url())
	say("")
	say("Ctrl-C ends it.")
	say("")
}

func (s *shop) close() error {
	_ = s.listener.Close() // the server has closed it, unless it never ran
	return s.peers.close()
}
