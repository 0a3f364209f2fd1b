// Command latency measures how long an order takes from its commit to the
// queue's acknowledgement, at a moderate rate, on PostgreSQL and on SQLite. The
// relay runs in this process, as in `orders demo`, and sends to the emulator of
// SQS:
//
//	go run ./bench/latency
//
// Orders are placed at fixed times, whether earlier ones are done or not, so
// that a stall shows in all that it delays. The database waits for the disk, as
// in production. Nothing is asserted.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/internal/pgserver"
)

type options struct {
	rate     int           // orders per second
	duration time.Duration // that is measured
	warmUp   time.Duration // before that
}

func main() {
	var o options
	databases := flag.String("databases", "postgres,sqlite", "which `databases` to measure, separated by commas; a URL measures that PostgreSQL")
	flag.IntVar(&o.rate, "rate", 50, "orders per second")
	flag.DurationVar(&o.duration, "duration", 20*time.Second, "how long to measure")
	flag.DurationVar(&o.warmUp, "warm-up", 2*time.Second, "how long to run before that")
	flag.Parse()
	if o.rate <= 0 || o.duration <= 0 || o.warmUp < 0 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "latency: -rate and -duration must be positive, -warm-up not negative, and there are no arguments")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, o, strings.Split(*databases, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, o options, databases []string) error {
	emulator := awsemulator.Start()
	defer emulator.Close()
	fmt.Printf("commit to acknowledgement, %d orders/s for %v, %d CPUs, %s, %s/%s\n",
		o.rate, o.duration, runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	fmt.Printf("%-10s%10s%10s%10s%10s%10s%10s\n", "database", "orders", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms")
	for _, database := range databases {
		h, err := on(ctx, o, database, emulator)
		if err != nil {
			return fmt.Errorf("%s: %w", cmp.Or(strings.SplitN(database, ":", 2)[0], "no database"), err)
		}
		fmt.Printf("%-10s%10d", strings.SplitN(database, ":", 2)[0], h.TotalCount())
		for _, q := range []float64{50, 90, 99, 99.9, 100} {
			fmt.Printf("%10.1f", float64(h.ValueAtQuantile(q))/1000)
		}
		fmt.Println()
	}
	return nil
}

// on measures one database; the histogram is in microseconds.
func on(ctx context.Context, o options, database string, emulator *awsemulator.Server) (h *hdrhistogram.Histogram, err error) {
	switch database {
	case "postgres":
		server, err := pgserver.Start(ctx, pgserver.Options{})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		database = server.URL("postgres")
	case "sqlite":
		dir, err := os.MkdirTemp("", "postrider-latency-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		database = "sqlite:" + filepath.Join(dir, "orders.db")
	}
	s, err := openShop(ctx, database, emulator)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return s.measure(ctx, o)
}
