// Command counter is a relay on PostgreSQL that counts its messages instead of
// sending them, for tests of what a relay does to its database over time, and of
// what it takes. It takes the messages of package load.
//
//	counter [-route NAME] [-sent 1m] [-dead] [-retry N] [-every 1s] [-sink ADDRESS]
//
// The database is in COUNTER_DATABASE. While it works it prints a Report as a
// line of JSON from time to time, and a last one when it has stopped; SIGUSR1
// has its broker go away, SIGUSR2 come back. Exit codes are as of postrider.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/test/internal/load"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx)
	stop()
	if _, unsettled := errors.AsType[*relay.UnsettledError](err); unsettled {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	debug.SetMemoryLimit(2*relay.DefaultInFlightBytes + 64<<20) // as the command does
	route := flag.String("route", "count", "name of the route")
	sent := flag.Duration("sent", relay.DefaultRetentionSent, "how long sent messages are kept")
	dead := flag.Bool("dead", false, "begin with a broker that is away")
	sink := flag.String("sink", "", "address of a load.Sink that counts instead")
	retry := flag.Int("retry", 0, "refuse every Nth message once; 0: none")
	every := flag.Duration("every", time.Second, "between two reports")
	lease := flag.Duration("lease", 5*time.Second, "of each shard")
	flag.Parse()
	config, err := pgxpool.ParseConfig(os.Getenv("COUNTER_DATABASE"))
	if err != nil {
		return err
	}
	config.MaxConns = 8 // the command's default
	config.ConnConfig.RuntimeParams["application_name"] = "counter"
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := poll.New(poll.Config{Pool: pool})
	if err != nil {
		return err
	}
	counter := load.NewCounter(*retry)
	counter.SetDead(*dead)
	var publisher outbox.Publisher = counter
	if *sink != "" {
		publisher = load.Dial(*sink)
	}
	r, err := relay.New(relay.Config{
		Store:     store,
		Routes:    []relay.Route{{Name: *route, Topics: []string{"**"}, Publisher: publisher, Retry: relay.RetryPolicy{Initial: 100 * time.Millisecond, Max: time.Second}}},
		Lease:     *lease,
		Retention: relay.Retention{Sent: max(*sent, time.Nanosecond)},
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	out := json.NewEncoder(os.Stdout)
	report := func(last bool) error {
		stats := r.Stats()
		r := counter.Report()
		r.Last, r.Cleaned, r.CleanFailures, r.CleanError = last, stats.Clean.Log, stats.Clean.Failures, stats.Clean.LastError
		for _, route := range stats.Routes {
			r.Held += route.ShardsHeld
			r.Fenced += route.Fenced
		}
		return out.Encode(r)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	tick := time.NewTicker(*every)
	defer tick.Stop()
	for {
		select {
		case s := <-signals:
			counter.SetDead(s == syscall.SIGUSR1)
		case <-tick.C:
			if err := report(false); err != nil {
				return err
			}
		case err := <-ended:
			return errors.Join(err, report(true))
		}
	}
}
