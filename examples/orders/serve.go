package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/database"
	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/examples/orders/web"
)

type serveCommand struct {
	DB     string `help:"Where orders and events are kept: postgres://user@host:5432/name or sqlite:PATH." required:"" env:"ORDERS_DB,DATABASE_URL" placeholder:"URL"`
	Addr   string `help:"Address to answer on." default:"127.0.0.1:3000" env:"ORDERS_ADDR"`
	Schema string `help:"Schema of Postrider's tables in PostgreSQL." default:"postrider" env:"POSTRIDER_SCHEMA"`
}

func (c *serveCommand) Run(ctx context.Context, log *slog.Logger) error {
	where, err := config.ParseDatabase(c.DB)
	if err != nil {
		return err
	}
	db, err := database.Open(ctx, where, c.Schema)
	if err != nil {
		return err
	}
	defer db.Close()
	service, err := order.New(order.Config{DB: db.DB, Inserter: db.Inserter, Logger: log})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return usage(fmt.Errorf("%w: choose another address with --addr", err))
	}
	log.InfoContext(ctx, "order service started", "url", "http://"+listener.Addr().String(), "database", where)
	err = web.Serve(ctx, listener, service.Handler(), log)
	log.Info("order service stopped")
	return err
}
