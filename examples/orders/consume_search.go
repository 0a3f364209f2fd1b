package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/search"
)

type searchCommand struct {
	Queue string `help:"Name, URL or ARN of the service's queue." default:"search" env:"ORDERS_SEARCH_QUEUE"`
	Index string `help:"Folder of the index; it is created if it is not there." default:"search.bleve" env:"ORDERS_SEARCH_INDEX" type:"path" placeholder:"DIR"`
	//lint:ignore SA5008 kong takes several values of set
	consumerFlags `embed:"" envprefix:"ORDERS_SEARCH_" set:"addr=127.0.0.1:3004" set:"retry=1s"`
}

func (c *searchCommand) Run(ctx context.Context, log *slog.Logger) (err error) {
	aws, err := cloud.Load(ctx)
	if err != nil {
		return usage(err)
	}
	s, err := search.Open(search.Config{Path: c.Index, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return c.run(ctx, log, aws, reaction{
		name: "search", queue: c.Queue, addr: "127.0.0.1:3004", handle: s.Handle, api: s.Handler(), check: s.Check,
	}, "index", c.Index)
}
