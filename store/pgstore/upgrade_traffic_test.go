package pgstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
)

// traffic is producers and two relays of this version.
type traffic struct {
	t       *testing.T
	pool    *pgxpool.Pool
	relays  []*relay.Relay
	logs    lines
	enough  context.CancelFunc
	writers sync.WaitGroup
	sent    [traffickers]atomic.Int64 // messages that each producer committed

	mu       sync.Mutex
	arrived  map[string][]int // numbers of each key, as they came
	messages int
}

const traffickers = 3

// lines is a log of warnings.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (tr *traffic) Publish(_ context.Context, msgs []outbox.Message) []outbox.Result {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for i := range msgs {
		n, _ := strconv.Atoi(string(msgs[i].Payload))
		tr.arrived[msgs[i].Key] = append(tr.arrived[msgs[i].Key], n)
	}
	tr.messages += len(msgs)
	return make([]outbox.Result, len(msgs))
}

func (tr *traffic) published() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.messages
}

func startTraffic(t *testing.T) *traffic {
	t.Helper()
	tr := &traffic{t: t, pool: migrated(t, pgstore.Options{}), arrived: map[string][]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range 2 {
		store, err := poll.New(poll.Config{Pool: tr.pool})
		if err != nil {
			t.Fatal(err)
		}
		r, err := relay.New(relay.Config{
			Store: store, Owner: fmt.Sprint("relay ", i), Lease: 3 * time.Second,
			Routes: []relay.Route{{Name: "route", Topics: []string{"**"}, Publisher: tr}},
			Logger: slog.New(slog.NewTextHandler(&tr.logs, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		tr.relays = append(tr.relays, r)
		running.Go(func() { _ = r.Run(ctx) }) // what it left unsettled is not the subject
	}
	produce, enough := context.WithCancel(ctx)
	tr.enough = enough
	for i := range traffickers {
		tr.writers.Go(func() { tr.produce(produce, i) })
	}
	t.Cleanup(func() { cancel(); tr.writers.Wait(); running.Wait() })
	await(t, "messages flow", func() bool { return tr.published() > 50 })
	return tr
}

// produce commits messages of one key, the one or the other way, until ctx ends.
func (tr *traffic) produce(ctx context.Context, producer int) {
	w := outbox.NewWriter(pgstore.Pgx{})
	key := fmt.Sprint("key-", producer)
	for n := 1; ctx.Err() == nil; n++ {
		whole := context.WithoutCancel(ctx)
		payload := strconv.Itoa(n)
		err := pgx.BeginFunc(whole, tr.pool, func(tx pgx.Tx) error {
			if producer == 0 {
				_, err := tx.Exec(whole, `SELECT postrider.enqueue(topic => 't', key => $1, payload => convert_to($2::text, 'UTF8'))`, key, payload)
				return err
			}
			return w.Enqueue(whole, tx, outbox.Message{Topic: "t", Key: key, Payload: []byte(payload)})
		})
		if err != nil {
			tr.t.Errorf("producer %d, message %d: %v", producer, n, err)
			return
		}
		tr.sent[producer].Store(int64(n))
		time.Sleep(time.Millisecond)
	}
}

func (tr *traffic) committed() (n int64) {
	for i := range tr.sent {
		n += tr.sent[i].Load()
	}
	return n
}

// more waits until every producer has committed more.
func (tr *traffic) more(what string) {
	tr.t.Helper()
	var before [traffickers]int64
	for i := range before {
		before[i] = tr.sent[i].Load()
	}
	await(tr.t, what, func() bool {
		for i := range before {
			if tr.sent[i].Load() < before[i]+5 {
				return false
			}
		}
		return true
	})
}

// end stops the producers and checks that everything arrived in order.
func (tr *traffic) end() {
	tr.t.Helper()
	tr.enough()
	tr.writers.Wait()
	want := int(tr.committed())
	seen := func() (n int, wrong string) {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		for key, numbers := range tr.arrived {
			highest := 0
			for _, number := range numbers {
				if number > highest+1 { // one that comes again is no mistake
					wrong = fmt.Sprintf("%s: %d came after %d", key, number, highest)
				}
				highest = max(highest, number)
			}
			n += highest
		}
		return n, wrong
	}
	await(tr.t, "all messages arrive", func() bool { n, _ := seen(); return n == want })
	if _, wrong := seen(); wrong != "" {
		tr.t.Error(wrong)
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) || t.Failed() {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}
