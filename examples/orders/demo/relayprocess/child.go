package relayprocess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/broker/snsbroker"
	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/database"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// statusEvery is how often the child looks whether its status has changed.
const statusEvery = 50 * time.Millisecond

// owner is the relay's name to the store. All children of a demo, of which one
// runs at a time, have the same: so a child gets the shards of one that was
// killed at once, and fences it.
const owner = "demo"

// Main is the child. It runs until its standard input ends, which happens also
// when the parent is killed, or ctx ends.
func Main(ctx context.Context, log *slog.Logger) error {
	// A terminal's ctrl-C reaches the child too; the parent stops it in its turn.
	signal.Ignore(os.Interrupt)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	err := serve(ctx, Settings{
		DB:       os.Getenv(variableDB),
		To:       os.Getenv(variableTo),
		Endpoint: os.Getenv(variableEndpoint),
	}, &reporter{out: os.Stdout}, log)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil // stopped before it had begun
	}
	return err
}

func serve(ctx context.Context, s Settings, to *reporter, log *slog.Logger) (err error) {
	where, err := config.ParseDatabase(s.DB)
	if err != nil {
		return err
	}
	db, err := database.Open(ctx, where, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	store, err := db.RelayStore()
	if err != nil {
		return err
	}
	shards, err := store.Shards(ctx)
	if err != nil {
		return err
	}
	publisher, err := newPublisher(s)
	if err != nil {
		return err
	}
	r, err := relay.New(relay.Config{
		Store:  store,
		Owner:  owner,
		Routes: []relay.Route{{Name: "orders", Topics: []string{event.Topic}, Publisher: &watched{publisher, to}}},
		Logger: log,
	})
	if err != nil {
		return fmt.Errorf("set up the relay: %w", err)
	}
	watching, done := context.WithCancel(context.WithoutCancel(ctx))
	var watcher sync.WaitGroup
	watcher.Go(func() { to.watch(watching, r, shards) })
	err = r.Run(ctx)
	done()
	watcher.Wait()
	if unsettled, ok := errors.AsType[*relay.UnsettledError](err); ok {
		to.say(report{Kind: status, At: time.Now(), Status: &Status{Loose: unsettled.Messages}})
		err = nil // the parent tells it
	}
	return err
}

func newPublisher(s Settings) (outbox.Publisher, error) {
	aws := awsemulator.Config(s.Endpoint)
	if strings.HasPrefix(s.To, "arn:aws:sns:") {
		return snsbroker.NewPublisher(snsbroker.PublisherConfig{Client: sns.NewFromConfig(aws), Topic: s.To})
	}
	return sqsbroker.NewPublisher(sqsbroker.PublisherConfig{Client: sqs.NewFromConfig(aws), Queue: s.To})
}

// watched reports what is published.
type watched struct {
	outbox.Publisher
	to *reporter
}

func (w *watched) Publish(ctx context.Context, messages []outbox.Message) []outbox.Result {
	keys := make([]string, len(messages))
	for i, m := range messages {
		keys[i] = m.Key
	}
	w.to.say(report{Kind: taken, At: time.Now(), Keys: keys})
	results := w.Publisher.Publish(ctx, messages)
	at := time.Now()
	var good, bad []string
	for i, r := range results {
		if r.Err == nil {
			good = append(good, keys[i])
		} else {
			bad = append(bad, keys[i])
		}
	}
	if good != nil {
		w.to.say(report{Kind: sent, At: at, Keys: good})
	}
	if bad != nil {
		w.to.say(report{Kind: refused, At: at, Keys: bad})
	}
	return results
}

// reporter writes one line for each report, whole or not at all unless the
// process is killed. Safe for concurrent use.
type reporter struct {
	mu  sync.Mutex
	out io.Writer
}

func (r *reporter) say(about report) {
	line, err := json.Marshal(about)
	if err != nil {
		panic(err) // a programming error: only encodable types are in it
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.out.Write(append(line, '\n')) // a parent that has gone has closed standard input too
}

// watch reports the status whenever it changes.
func (r *reporter) watch(ctx context.Context, of *relay.Relay, shards int) {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	last := Status{}
	for {
		if now := look(of, shards); now != last {
			last = now
			r.say(report{Kind: status, At: time.Now(), Status: &now})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func look(r *relay.Relay, shards int) Status {
	var s Status
	if routes := r.Stats().Routes; len(routes) == 1 {
		route := routes[0]
		s = Status{
			Ready:       route.ShardsHeld == shards,
			Away:        route.BreakerOpen,
			Unavailable: route.Unavailable,
			Retried:     route.Retried,
		}
		if route.BreakerOpen {
			s.Error = route.LastError
		}
	}
	return s
}
