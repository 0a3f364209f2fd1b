package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/probe"
)

// healthCommand is for the health checks of containers, whose image has no
// other program.
type healthCommand struct {
	Addr    string        `arg:"" help:"Address that the service answers on, host:port."`
	Timeout time.Duration `help:"How long to wait for its answer." default:"5s"`
}

func (c *healthCommand) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := probe.Get(ctx, c.Addr, "/healthz"); err != nil {
		return errors.New(err.Error()) // not AWS's trouble, whatever it looks like
	}
	fmt.Println("healthy")
	return nil
}
