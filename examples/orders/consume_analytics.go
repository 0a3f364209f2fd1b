package main

import (
	"context"
	"log/slog"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/analytics"
	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/inboxdb"
)

type analyticsCommand struct {
	Queue  string `help:"Name, URL or ARN of the service's queue." default:"analytics" env:"ORDERS_ANALYTICS_QUEUE"`
	DB     string `help:"The service's own database: postgres://user@host:5432/name or sqlite:PATH." default:"sqlite:analytics.db" env:"ORDERS_ANALYTICS_DB" placeholder:"URL"`
	Schema string `help:"Schema of the inbox in PostgreSQL." default:"postrider" env:"POSTRIDER_SCHEMA"`
	//lint:ignore SA5008 kong takes several values of set
	consumerFlags `embed:"" envprefix:"ORDERS_ANALYTICS_" set:"addr=127.0.0.1:3003" set:"retry=1s"`
}

func (c *analyticsCommand) Run(ctx context.Context, log *slog.Logger) error {
	where, err := config.ParseDatabase(c.DB)
	if err != nil {
		return err
	}
	aws, err := cloud.Load(ctx)
	if err != nil {
		return usage(err)
	}
	db, err := analytics.Open(ctx, where, inboxdb.Options{Schema: c.Schema, Connections: c.Handlers + readers})
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := analytics.New(analytics.Config{DB: db, Logger: log})
	if err != nil {
		return err
	}
	return c.run(ctx, log, aws, reaction{
		name: "analytics", queue: c.Queue, addr: "127.0.0.1:3003", handle: s.Handle, api: s.Handler(), check: db.Check,
	}, "database", where)
}
