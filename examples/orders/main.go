// Command orders is the reference system: a shop whose orders and events commit
// together, and a fulfilment service that reacts to them. `orders demo` runs
// all of it in one process; the other commands run its parts.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/demo"
	"github.com/postrider/postrider/relay"
)

// Exit codes, the same as postrider's.
const (
	exitFinding   = 1 // something is not as it must be
	exitUsage     = 2 // usage or configuration
	exitConnect   = 3 // cannot connect
	exitUnsettled = 4 // stopped with messages that may repeat
)

type cli struct {
	Demo      demoCommand      `cmd:"" help:"Run the whole shop in this one process, with nothing to install."`
	Serve     serveCommand     `cmd:"" help:"Run the order service."`
	Consume   consumeCommand   `cmd:"" help:"Run a service that reacts to orders."`
	Provision provisionCommand `cmd:"" help:"Create what is missing of topic, queues, subscriptions and table; safe to run again."`
	Check     checkCommand     `cmd:"" help:"Print the fulfilment of an order as JSON."`
	DemoRelay demoRelayCommand `cmd:"" hidden:""`
	Health    healthCommand    `cmd:"" help:"Ask a service on this machine whether it is well."`

	LogLevel slog.Level `help:"The least level that is logged: debug, info, warn or error." default:"info" env:"ORDERS_LOG_LEVEL" placeholder:"LEVEL"`
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	var c cli
	exited := -1
	parser := kong.Must(&c,
		kong.Name("orders"),
		kong.Description("A shop whose orders and events commit together.\n\n"+
			"Queues and tables are AWS's: the SDK's own environment decides which "+
			"(AWS_ENDPOINT_URL for an emulator; AWS_REGION and the standard credentials for AWS)."),
		kong.UsageOnError(),
		kong.Exit(func(code int) { exited = code }),
	)
	command, err := parser.Parse(args)
	if exited >= 0 { // --help
		return exited
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "orders: %v\nTry `orders --help`.\n", err)
		return exitUsage
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: c.LogLevel}))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)

	command.BindTo(ctx, (*context.Context)(nil))
	return report(command.Run(log))
}

// report prints an error with a hint how to mend it, and returns the exit code.
func report(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "orders: %v\n", err)
	hint := cloud.Hint(err)
	if knowing, ok := errors.AsType[interface {
		error
		Hint() string
	}](err); ok {
		hint = knowing.Hint()
	}
	if is[*pgconn.ConnectError](err) {
		hint = "is PostgreSQL running at that address, and may this user connect?"
	}
	if hint != "" {
		fmt.Fprintf(os.Stderr, "hint: %s\n", hint)
	}
	return exitCode(err)
}

func exitCode(err error) int {
	if is[*usageError](err) || is[*config.Error](err) {
		return exitUsage
	}
	if is[*demo.Finding](err) {
		return exitFinding
	}
	if is[*relay.UnsettledError](err) {
		return exitUnsettled
	}
	if is[*pgconn.ConnectError](err) || cloud.Unreachable(err) {
		return exitConnect
	}
	return exitFinding
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// usageError is what the user can mend by another flag or variable.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usage(err error) error { return &usageError{err} }
