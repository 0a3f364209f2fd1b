package main

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/internal/probe"
)

type healthCommand struct {
	Config  string        `short:"c" placeholder:"FILE" help:"The relay's YAML file. Without it ./postrider.yaml, if it is there."`
	HTTP    *string       `name:"http" placeholder:"ADDRESS" help:"Where the relay serves /readyz (127.0.0.1:8080)."`
	Timeout time.Duration `default:"5s" help:"How long to wait for its answer."`
}

func (*healthCommand) Help() string {
	return `Asks the relay on this machine whether messages flow: exit code 0 if they do, 1 with the reason if they do not. For the health checks of containers and services, and for people.`
}

func (h *healthCommand) Run(p *process, ctx context.Context) error {
	flags := make(map[string]string)
	put(flags, "http", h.HTTP)
	c, err := config.Load(config.Input{File: h.Config, Environ: p.Environ, Flags: flags})
	if err != nil {
		return err
	}
	if c.HTTP == "" {
		return usage(fmt.Errorf("http is off: there is nothing to ask"), "give the relay an address with --http")
	}
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	if err := probe.Get(ctx, c.HTTP, "/readyz"); err != nil {
		return &failure{code: exitFinding, err: err}
	}
	return printLines(p.Stdout, "ready")
}
