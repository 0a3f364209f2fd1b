package relay_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// queues is a route with a destination for each topic.
func queues(publisher outbox.Publisher) relay.Route {
	return relay.Route{Name: "queues", Topics: []string{"q*"}, Publisher: publisher}
}

// fill enqueues the messages 1 to n of each of the topics q0, q1, … on keys of
// their own, page by page.
func fill(t testing.TB, store *memstore.Store, topics, n int, key func(topic, i int) string) {
	t.Helper()
	for i := 1; i <= n; i++ {
		fillOne(t, store, topics, i, key)
	}
}

// fillOne enqueues message i of each.
func fillOne(t testing.TB, store *memstore.Store, topics, i int, key func(topic, i int) string) {
	t.Helper()
	page := make([]outbox.Message, topics)
	for topic := range page {
		page[topic] = outbox.Message{Topic: fmt.Sprint("q", topic), Key: key(topic, i), Payload: strconv.AppendInt(nil, int64(i), 10)}
	}
	enqueue(t, store, page...)
}

func noKey(int, int) string { return "" }

func someKeys(topic, i int) string { return fmt.Sprintf("%d-%d", topic, i%7) }

func fewKeys(topic, _ int) string { return fmt.Sprint(topic) }

// fault is what becomes of a message to a destination that is not well.
type fault func(ctx context.Context) error

var faults = map[string]fault{
	"well": func(context.Context) error { return nil },
	"away": func(context.Context) error { return outbox.Unavailable(errAway) },
	"hangs": func(ctx context.Context) error {
		<-ctx.Done()
		return outbox.TimedOut(ctx.Err())
	},
	"slow": func(context.Context) error {
		time.Sleep(time.Second)
		return nil
	},
}

// One of ten destinations is away, hangs, or is slow: the others keep their rate,
// with a backlog larger than the room in hand, and with messages coming in.
func TestOneDestinationAmongTen(t *testing.T) {
	seconds := testsize.Pick(10, 60)
	for name, c := range map[string]struct {
		backlog bool
		key     func(int, int) string
	}{
		"backlog":                 {true, noKey},
		"stream, seven keys each": {false, someKeys},
		"stream, one key each":    {false, fewKeys},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := 9 * 100 * seconds
			if c.backlog { // as many as when all are well
				synctest.Test(t, func(t *testing.T) { want = rateOfNine(t, seconds, faults["well"], true, c.key) })
			}
			for _, name := range []string{"away", "hangs", "slow"} {
				synctest.Test(t, func(t *testing.T) {
					got := rateOfNine(t, seconds, faults[name], c.backlog, c.key)
					t.Logf("%s: the nine others got %d messages in %d s", name, got, seconds)
					if got < want*95/100 {
						t.Errorf("%s: the others got %d messages in %d s, %d when it is well", name, got, seconds, want)
					}
				})
			}
		})
	}
}

// rateOfNine is how much nine destinations get in so many seconds while the
// tenth has a fault. With messages coming in none of theirs may be late.
func rateOfNine(t *testing.T, seconds int, fault fault, backlog bool, key func(int, int) string) int {
	store, broker := memstore.New(memstore.Options{}), membroker.New()
	var mu sync.Mutex
	var enqueued []time.Time
	var late time.Duration
	got := 0
	route := queues(&membroker.Publisher{Broker: broker, Before: func(ctx context.Context, m outbox.Message) error {
		if m.Topic == "q7" {
			time.Sleep(10 * time.Millisecond)
			return fault(ctx)
		}
		if backlog {
			time.Sleep(10 * time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		got++
		if i, _ := strconv.Atoi(string(m.Payload)); !backlog {
			late = max(late, time.Since(enqueued[i]))
		}
		return nil
	}})
	route.Concurrency = 2
	const room = 500
	config := relay.Config{Store: store, Limits: relay.Limits{InFlightMessages: room}, Routes: []relay.Route{route}}
	if backlog {
		fill(t, store, 10, seconds*2*100, key)
	}
	r, stop := start(t, config)
	if backlog {
		time.Sleep(time.Duration(seconds) * time.Second)
	} else {
		for i := range seconds * 100 {
			mu.Lock()
			enqueued = append(enqueued, time.Now())
			mu.Unlock()
			fillOne(t, store, 10, i, key)
			time.Sleep(10 * time.Millisecond)
		}
	}
	if s := r.Stats().Routes[0]; s.InFlight > 4*room || s.Retried+s.Failed > 0 {
		t.Errorf("stats %+v", s)
	}
	_ = stop() // the hanging ones may have arrived
	if late > time.Second {
		t.Errorf("a message of another destination was %v late", late)
	}
	return got
}

// What passes elsewhere says nothing about a message that times out: it spends
// an attempt once another message of its own destination gets through.
func TestTimeoutIsJudgedWithinTheDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{queues(&membroker.Publisher{Broker: broker, Before: func(ctx context.Context, m outbox.Message) error {
			if m.Key == "bad" {
				return faults["hangs"](ctx)
			}
			return nil
		}})}})
		on := func(topic, key string) outbox.Message { return outbox.Message{Topic: topic, Key: key} }
		enqueue(t, store, on("q1", "bad"))
		for range 300 {
			enqueue(t, store, on("q0", "good"), on("q2", ""))
			time.Sleep(time.Second)
		}
		if s := r.Stats().Routes[0]; s.Retried+s.Failed > 0 || s.DestinationsAway != 1 || s.Sent != 600 {
			t.Errorf("while only others pass: %+v", s)
		}
		for range 20 {
			enqueue(t, store, on("q1", "good"))
			time.Sleep(10 * time.Second)
		}
		if s := r.Stats().Routes[0]; s.Retried < 3 || s.Sent != 620 {
			t.Errorf("once another one passes: %+v", s)
		}
		_ = stop() // the bad one may have arrived
	})
}

// Calls that began while the destination was away, and run out of time once it is
// back, say nothing about their messages.
func TestTimeoutsOfAnOutageSpendNoAttempt(t *testing.T) {
	for _, back := range []int{9, 10, 12, 15, 20, 30} {
		t.Run(fmt.Sprintf("back after %d s", back), func(t *testing.T) { timeoutsOfAnOutage(t, back) })
	}
}

func timeoutsOfAnOutage(t *testing.T, back int) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		var away atomic.Bool
		away.Store(true)
		r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{queues(&membroker.Publisher{Broker: broker, Before: func(ctx context.Context, _ outbox.Message) error {
			if away.Load() {
				return faults["hangs"](ctx)
			}
			return nil
		}})}})
		const n = 100
		for i := 1; i <= n; i++ { // the first two are given up after 7.5 s and 8.5 s
			fillOne(t, store, 1, i, noKey)
			time.Sleep(time.Second)
			if i == back {
				away.Store(false)
			}
		}
		if s := r.Stats().Routes[0]; s.Retried+s.Failed > 0 || s.Unavailable < 5 {
			t.Errorf("stats %+v", s)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		wantInOrder(t, broker.Messages("q0"), n)
	})
}

// Sixty of seventy destinations hang at the same time, which is more calls than
// the route makes: the others go on.
func TestManyDestinationsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		var mu sync.Mutex
		calls, most := 0, 0
		running, mostOfOne := make(map[string]int), 0
		good := &membroker.Publisher{Broker: broker, Before: func(ctx context.Context, m outbox.Message) error {
			if n, _ := strconv.Atoi(m.Topic[1:]); n >= 10 {
				return faults["hangs"](ctx)
			}
			time.Sleep(time.Millisecond)
			return nil
		}}
		watched := watchedPublisher{good, func(topic string, by int) {
			mu.Lock()
			defer mu.Unlock()
			calls += by
			running[topic] += by
			most, mostOfOne = max(most, calls), max(mostOfOne, running[topic])
		}}
		r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{queues(watched)}})
		const n = 200
		fill(t, store, 70, n, noKey)
		time.Sleep(5 * time.Second)
		for topic := range 10 {
			if got := len(broker.Messages(fmt.Sprint("q", topic))); got != n {
				t.Errorf("%d messages arrived at destination %d, want %d", got, topic, n)
			}
		}
		mu.Lock()
		if most > 256 || mostOfOne > relay.DefaultConcurrency {
			t.Errorf("%d calls at the same time, %d of one destination", most, mostOfOne)
		}
		t.Logf("%d calls at the same time, %d of one destination", most, mostOfOne)
		mu.Unlock()
		time.Sleep(time.Minute)
		if s := r.Stats().Routes[0]; s.DestinationsAway != 60 || len(s.Destinations) != 20 || s.Retried+s.Failed > 0 {
			t.Errorf("stats %+v", s)
		}
		_ = stop() // the hanging ones may have arrived
	})
}

// watchedPublisher tells when a call begins (1) and ends (-1), and for where.
type watchedPublisher struct {
	*membroker.Publisher
	call func(topic string, by int)
}

func (p watchedPublisher) Publish(ctx context.Context, msgs []outbox.Message) []outbox.Result {
	p.call(msgs[0].Topic, 1)
	defer p.call(msgs[0].Topic, -1)
	for _, m := range msgs {
		if m.Topic != msgs[0].Topic {
			panic("a batch of several destinations")
		}
	}
	return p.Publisher.Publish(ctx, msgs)
}

// Destinations that are not used any more are forgotten, whatever they were like.
func TestDestinationsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{}), membroker.New()
		r, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{queues(&membroker.Publisher{Broker: broker, Before: func(_ context.Context, m outbox.Message) error {
			if n, _ := strconv.Atoi(m.Topic[1:]); n%10 == 0 {
				return outbox.Permanent(errTest)
			}
			return nil
		}})}})
		const n = 10_000
		most := 0
		for i := range n {
			enqueue(t, store, outbox.Message{Topic: fmt.Sprint("q", i)})
			if i%100 == 0 {
				time.Sleep(100 * time.Millisecond)
				most = max(most, r.Stats().Routes[0].DestinationsKnown)
			}
		}
		time.Sleep(time.Second)
		if s := r.Stats().Routes[0]; s.Sent != n*9/10 || s.Failed != n/10 {
			t.Errorf("stats %+v", s)
		}
		if most > 2000 {
			t.Errorf("%d destinations are remembered", most)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
