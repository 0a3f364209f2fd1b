// Package demo runs the whole shop: order service, relay, the services that
// react to orders, their databases, an AWS emulator, and a page that shows all
// of it. Everything is in one process but for the relay, which has one of its
// own so that it can be killed.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/examples/orders/demo/journal"
	"github.com/postrider/postrider/examples/orders/demo/relayprocess"
	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/examples/orders/page"
	"github.com/postrider/postrider/examples/orders/web"
)

// Options of a run.
type Options struct {
	// Addr of the order service and the page. Default: 127.0.0.1:3000, with
	// Exit a free port of the loopback interface.
	Addr string
	// Plain: the relay sends straight to one queue of SQS, and fulfilment is
	// the only service.
	Plain bool
	// Orders is how many orders to place at the start.
	Orders int
	// Exit ends the run once every service has every order, or nothing has
	// moved for Patience; otherwise it goes on until the context ends.
	Exit     bool
	Patience time.Duration // default 30 s
	// Postgres is the URL of a PostgreSQL database to use, or "auto" for a
	// server of the demo's own. Empty: SQLite.
	Postgres string
	// Keep is the folder in which all data is kept for the next run. Empty: a
	// temporary one, removed at the end.
	Keep string
	// Out gets what the demo has to say; Logger what goes wrong inside, by
	// default slog.Default.
	Out    io.Writer
	Logger *slog.Logger
}

const (
	defaultAddr     = "127.0.0.1:3000"
	anyPort         = "127.0.0.1:0"
	defaultPatience = 30 * time.Second
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
	if o.Logger == nil {
		o.Logger = slog.Default()
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
	*parts
	peers    *peers
	listener net.Listener
	orders   *order.Service
	relay    *relayprocess.Process
	journal  *journal.Journal
	watch    *watch
	page     *page.Page
}

func assemble(ctx context.Context, o Options, f *folder) (*shop, error) {
	s := &shop{Options: o, parts: &parts{}}
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
	if err := s.parts.make(ctx, s); err != nil {
		return err
	}
	s.journal = journal.New(len(s.reactions), s.tell)
	client := s.peers.consumers()
	for i, r := range s.reactions {
		if err := r.start(client, i, s.journal, s.parts.log); err != nil {
			return err
		}
	}
	s.orders, err = order.New(order.Config{
		DB:        s.peers.db.DB,
		Inserter:  s.peers.db.Inserter,
		Logger:    s.Logger,
		Committed: func(o order.Order) { s.journal.Committed(o.ID, o.CustomerID, o.AmountCents) },
	})
	if err != nil {
		return err
	}
	s.relay = relayprocess.New(relayprocess.Config{
		Settings: relayprocess.Settings{DB: s.peers.url, To: s.destination, Endpoint: s.peers.broker.URL},
		Taken:    s.journal.Taken,
		Sent:     s.journal.Sent,
		Changed:  s.journal.Touch,
		Logger:   s.Logger,
	})
	s.watch = newWatch(s)
	shown := page.Config{Source: s.watch, Place: s.placeForPage, Experiments: s.experiments(), Logger: s.Logger}
	if s.search != nil {
		shown.Search = func(ctx context.Context, query string) ([]page.Hit, int, error) { return find(ctx, s.search, query) }
	}
	s.page, err = page.New(shown)
	return err
}

// handler answers what belongs to the order service with it, everything else
// with the page.
func (s *shop) handler() http.Handler {
	orders, mux := s.orders.Handler(), http.NewServeMux()
	mux.Handle("/orders", orders)
	mux.Handle("/orders/", orders)
	mux.Handle("/healthz", orders)
	if s.search != nil {
		mux.Handle("/search", s.search.Handler())
	}
	mux.Handle("/", s.page.Handler())
	return mux
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
	group, ctx := errgroup.WithContext(ctx)
	var stops []func() // last part to stop first
	run := func(part func(context.Context) error) {
		partCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		group.Go(func() error {
			defer close(done)
			return part(partCtx)
		})
		stops = append(stops, func() { cancel(); <-done })
	}
	for _, r := range s.reactions {
		run(r.service.Run)
	}
	run(s.relay.Run)
	run(func(ctx context.Context) error { return web.Serve(ctx, s.listener, s.handler(), s.Logger) })
	run(s.watch.run)
	run(s.page.Run)
	var result report
	finished := false
	group.Go(func() (err error) {
		defer func() {
			for i := len(stops) - 1; i >= 0; i-- {
				stops[i]()
			}
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
		return &Finding{text: "stopped before it was known whether every service has every order"}
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
		if _, err := place(ctx, s.url(), s.Orders, numbered); err != nil {
			return report{}, err
		}
		fmt.Fprintf(s.Out, "\n%d orders placed over HTTP in %s, %d at a time.\n", s.Orders, time.Since(begin).Round(time.Millisecond), placers)
	}
	if !s.Exit {
		<-ctx.Done()
		fmt.Fprintln(s.Out, "\nstopping")
		return report{}, ctx.Err()
	}
	result, err := s.settle(ctx, s.Patience)
	if err == nil {
		fmt.Fprintln(s.Out)
		result.print(s.Out)
	}
	return result, err
}

// awaitRelay waits until the relay has taken all shards, so that the delays
// that the demo reports are those of a running system.
func (s *shop) awaitRelay(ctx context.Context) error {
	return s.await(ctx, func() bool { return s.relay.State().Ready })
}

// await waits until the condition holds, which only what touches the journal
// can make true.
func (s *shop) await(ctx context.Context, condition func() bool) error {
	for {
		_, _, changed := s.journal.Progress()
		if condition() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// tell says that every service is done with an order.
func (s *shop) tell(o journal.Order) {
	if s.Exit {
		return
	}
	line := fmt.Sprintf("  order %s of %q:", o.ID, o.Customer)
	for i, v := range o.Visits {
		line += fmt.Sprintf(" %s %s,", s.reactions[i].name, milliseconds(max(v.Done.Sub(o.Committed), 0)))
	}
	fmt.Fprintln(s.Out, line[:len(line)-1]+" after its commit")
}

func (s *shop) url() string { return "http://" + s.listener.Addr().String() }

func (s *shop) introduce() {
	say := func(format string, args ...any) { fmt.Fprintf(s.Out, format+"\n", args...) }
	say("A shop on this machine. Each order commits together with the event that announces it;")
	say("a relay reads the log of what committed and sends it; services react, each once.")
	say("")
	say("  page          %s", s.url())
	say("  orders        %s", s.url())
	say("  database      %s", s.peers.where)
	s.parts.introduce(say)
	say("  AWS           emulated at %s, its queues at %s", s.peers.aws.Endpoint, s.peers.broker.URL)
	say("  data          %s", s.peers.folder)
	if s.Exit {
		return
	}
	say("")
	say("Open the page, or place an order here:")
	say("  curl -sS %s/orders -H 'Content-Type: application/json' -d '{\"customerId\":\"c1\",\"amountCents\":4999}'", s.url())
	say("")
	say("Ctrl-C ends it.")
	say("")
}

func (s *shop) close() error {
	_ = s.listener.Close() // the server has closed it, unless it never ran
	return errors.Join(s.parts.close(), s.peers.close())
}
