package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/postrider/postrider/examples/orders/demo"
	"github.com/postrider/postrider/examples/orders/demo/relayprocess"
)

type demoCommand struct {
	Addr     string        `help:"Address of the page and the order service. Default: 127.0.0.1:3000, with --exit a free port." placeholder:"HOST:PORT"`
	Plain    bool          `help:"Without SNS: the relay sends straight to the queue of fulfilment, which is the only service."`
	Orders   int           `help:"Place so many orders over HTTP at the start." placeholder:"N"`
	Exit     bool          `help:"Stop once every service has every order: print a table, and exit with 0, or 1 if something is missing."`
	Postgres string        `help:"Use PostgreSQL instead of SQLite: a URL, or auto for a server of the demo's own." placeholder:"URL|auto"`
	Keep     string        `help:"Keep all data in this folder; a second run continues from it." type:"path" placeholder:"DIR"`
	Patience time.Duration `help:"With --exit: give up when nothing has moved for so long." default:"30s"`
}

func (c *demoCommand) Validate() error {
	if c.Orders < 0 {
		return errors.New("--orders must not be negative")
	}
	if c.Patience <= 0 {
		return errors.New("--patience must be positive")
	}
	return nil
}

func (c *demoCommand) Run(ctx context.Context, log *slog.Logger) error {
	err := demo.Run(ctx, demo.Options{
		Addr:     c.Addr,
		Plain:    c.Plain,
		Orders:   c.Orders,
		Exit:     c.Exit,
		Patience: c.Patience,
		Postgres: c.Postgres,
		Keep:     c.Keep,
		Out:      os.Stdout,
		Logger:   log,
	})
	if is[*demo.SetupError](err) {
		return usage(err)
	}
	return err
}

// demoRelayCommand is the demo's relay in a process of its own. Only the demo
// starts it.
type demoRelayCommand struct{}

func (*demoRelayCommand) Run(ctx context.Context, log *slog.Logger) error {
	return relayprocess.Main(ctx, log)
}
