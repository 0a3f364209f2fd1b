package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
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
	"hangs and does not say so": func(ctx context.Context) error {
		<-ctx.Done()
		return outbox.Unavailable(errAway)
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
		"backlog":                   {true, noKey},
		"stream, seven keys each":   {false, someKeys},
		"stream, one key each":      {false, fewKeys},
		"stream, keys of their own": {false, func(topic, i int) string { return fmt.Sprint(topic, "-", i) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rates := make(map[string]int) // in messages
			for _, name := range []string{"well", "away", "hangs", "hangs and does not say so", "slow"} {
				synctest.Test(t, func(t *testing.T) { rates[name] = rateOfNine(t, seconds, faults[name], c.backlog, c.key) })
			}
			t.Logf("messages to the nine others in %d s: %v", seconds, rates)
			for name, n := range rates {
				if n < rates["well"]*95/100 {
					t.Errorf("%s: the others got %d messages in %d s, %d when it is well", name, n, seconds, rates["well"])
				}
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

// A destination that was away gets everything once it is back: each message
// once, in the order of its key, also what was parked meanwhile, and also when
// the relay was restarted in between. No attempt is spent.
func TestParkedWhileAwayKeepTheOrder(t *testing.T) {
	for name, key := range map[string]func(int, int) string{"without keys": noKey, "seven keys each": someKeys, "one key each": fewKeys} {
		for _, fault := range []string{"away", "hangs"} {
			for _, mode := range []string{"called back", "not called back", "restart"} {
				t.Run(fmt.Sprintf("%s/%s/%s", name, fault, mode), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { parkedAndBack(t, faults[fault], key, mode) })
				})
			}
		}
	}
}

func parkedAndBack(t *testing.T, fault fault, key func(int, int) string, mode string) {
	store, broker := memstore.New(memstore.Options{}), membroker.New()
	var away atomic.Bool
	route := queues(&membroker.Publisher{Broker: broker, Before: func(ctx context.Context, m outbox.Message) error {
		if m.Topic == "q1" && away.Load() {
			return fault(ctx)
		}
		return nil
	}})
	config := relay.Config{
		Store:  &faultyStore{Store: store, recalls: mode == "called back"},
		Limits: relay.Limits{InFlightMessages: 200}, Routes: []relay.Route{route},
	}
	r, stop := start(t, config)
	const n = 2000
	const before = 100
	fill(t, store, 3, before, key)
	time.Sleep(time.Second)
	away.Store(true)
	for i := before + 1; i <= n; i++ {
		fillOne(t, store, 3, i, key)
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Minute)
	for _, topic := range []string{"q0", "q2"} {
		if got := len(broker.Messages(topic)); got != n {
			t.Errorf("%d messages arrived at %s while another one is away, want %d", got, topic, n)
		}
	}
	if got := len(broker.Messages("q1")); got > before {
		t.Errorf("%d messages arrived where they could not", got)
	}
	s := r.Stats().Routes[0]
	if !s.BreakerOpen || s.DestinationsAway != 1 || len(s.Destinations) != 1 || s.Destinations[0].Name != "q1" || s.Destinations[0].Error == "" || s.Destinations[0].Parked < n/2 {
		t.Errorf("nothing shows what is away: %+v", s)
	}
	states := make(map[outbox.State]int)
	for _, p := range store.Parked("queues") {
		states[p.State]++
		if p.Attempts > 0 || !strings.HasPrefix(p.Message.Topic, "q1") {
			t.Errorf("parked: %+v", p)
		}
	}
	t.Logf("parked: %v", states)
	if mode == "restart" {
		_ = stop() // what hangs may have arrived
		r, stop = start(t, config)
		time.Sleep(time.Minute)
	}
	away.Store(false)
	if mode == "called back" {
		time.Sleep(25 * time.Second) // till a probe finds out, when the one under way has hung
	} else {
		time.Sleep(2 * time.Minute)
	}
	if s := r.Stats().Routes[0]; s.BreakerOpen || s.DestinationsAway != 0 || s.Retried+s.Failed > 0 {
		t.Errorf("attempts were spent, or it is not back: %+v", s)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for topic := range 3 {
		wantInOrder(t, broker.Messages(fmt.Sprint("q", topic)), n)
	}
	if left := store.Parked("queues"); len(left) > 0 {
		t.Errorf("%d still parked", len(left))
	}
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

// The route reads no more once as much is parked as may be, which shows; the
// other route goes on. When the destination is back everything arrives.
func TestBoundOfWhatIsParked(t *testing.T) {
	for name, key := range map[string]func(int, int) string{"without keys": noKey, "seven keys each": someKeys} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fillTheParking(t, key) })
		})
	}
}

func fillTheParking(t *testing.T, key func(int, int) string) {
	var logged bytes.Buffer
	store, broker := memstore.New(memstore.Options{}), membroker.New()
	var away atomic.Bool
	away.Store(true)
	several := queues(&membroker.Publisher{Broker: broker, Before: func(_ context.Context, m outbox.Message) error {
		if m.Topic == "q1" && away.Load() {
			return outbox.Unavailable(errAway)
		}
		return nil
	}})
	copies := relay.Route{Name: "copies", Topics: []string{"q*"}, Publisher: &membroker.Publisher{Broker: broker, Queue: "copies"}}
	const n, limit = 3000, 400
	r, stop := start(t, relay.Config{
		Store: store, Routes: []relay.Route{several, copies}, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		Limits: relay.Limits{InFlightMessages: 2 * 100, ParkedPending: 2 * limit},
	})
	for i := 1; i <= n; i++ {
		fillOne(t, store, 2, i, key)
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(time.Minute)
	s := r.Stats()
	if got := len(broker.Messages("copies")); got != 2*n {
		t.Errorf("%d messages arrived on the other route, want %d", got, 2*n)
	}
	if s := s.Routes[0]; s.ReadingStopped.IsZero() || len(s.Destinations) != 1 || s.Destinations[0].Parked < limit || s.Received == 2*n {
		t.Errorf("the route should read no more: %+v", s)
	}
	// A page for each shard may have been on its way.
	if got := len(store.Parked("queues")); got > limit+2*100 {
		t.Errorf("%d messages are parked, at most about %d may be", got, limit)
	}
	if got := strings.Count(logged.String(), "the route reads no more"); got == 0 || got > 3 {
		t.Errorf("logged %d times that the route reads no more", got)
	}
	away.Store(false)
	time.Sleep(2 * time.Minute)
	if s := r.Stats().Routes[0]; !s.ReadingStopped.IsZero() || s.Retried+s.Failed > 0 {
		t.Errorf("stats %+v", s)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for topic := range 2 {
		wantInOrder(t, broker.Messages(fmt.Sprint("q", topic)), n)
	}
}

// Very many messages for a destination that stays away cost few writes and few
// calls.
func TestManyParkedDoNotSpin(t *testing.T) {
	for _, recalls := range []bool{false, true} {
		t.Run(fmt.Sprint("called back=", recalls), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, broker := memstore.New(memstore.Options{}), membroker.New()
				var calls atomic.Int64
				r, stop := start(t, relay.Config{
					Store: &faultyStore{Store: store, recalls: recalls}, Limits: relay.Limits{InFlightMessages: 500},
					Routes: []relay.Route{queues(&membroker.Publisher{Broker: broker, Before: func(ctx context.Context, m outbox.Message) error {
						if m.Topic == "q1" {
							calls.Add(1)
							return outbox.Unavailable(errAway)
						}
						return nil
					}})},
				})
				const n = 10_000
				fill(t, store, 2, n, noKey)
				time.Sleep(time.Minute)
				if got := len(broker.Messages("q0")); got != n {
					t.Errorf("%d messages arrived at the other destination, want %d", got, n)
				}
				before, tried := r.Stats().Routes[0].Pending, calls.Load()
				time.Sleep(10 * time.Minute)
				again, tried := r.Stats().Routes[0].Pending-before, calls.Load()-tried
				t.Logf("of %d messages, in ten minutes: parked again %d times, tried %d times", n, again, tried)
				if again > 10*n { // 100 s each
					t.Errorf("parked again %d times in ten minutes", again)
				}
				if tried > 10*10 {
					t.Errorf("tried %d times in ten minutes", tried)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
