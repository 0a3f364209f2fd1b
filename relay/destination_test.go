package relay_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
// tenth has a fault.
func rateOfNine(t *testing.T, seconds int, fault fault, backlog bool, key func(int, int) string) int {
	store, broker := memstore.New(memstore.Options{}), membroker.New()
	var got atomic.Int64
	route := queues(&membroker.Publisher{Broker: broker, Before: func(ctx context.Context, m outbox.Message) error {
		if m.Topic == "q7" {
			time.Sleep(10 * time.Millisecond)
			return fault(ctx)
		}
		if backlog {
			time.Sleep(10 * time.Millisecond)
		}
		got.Add(1)
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
			fillOne(t, store, 10, i, key)
			time.Sleep(10 * time.Millisecond)
		}
	}
	n := int(got.Load())
	if s := r.Stats().Routes[0]; s.InFlight > 4*room || s.Retried+s.Failed > 0 {
		t.Errorf("stats %+v", s)
	}
	_ = stop() // the hanging ones may have arrived
	return n
}

// A destination that was away gets everything once it is back: each message
// once, in the order of its key, also what was parked meanwhile, and also when
// the relay was restarted in between. No attempt is spent.
func TestParkedWhileAwayKeepTheOrder(t *testing.T) {
	for name, key := range map[string]func(int, int) string{"without keys": noKey, "seven keys each": someKeys, "one key each": fewKeys} {
		for _, fault := range []string{"away", "hangs"} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/restart=%v", name, fault, restart), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { parkedAndBack(t, faults[fault], key, restart) })
				})
			}
		}
	}
}

func parkedAndBack(t *testing.T, fault fault, key func(int, int) string, restart bool) {
	store, broker := memstore.New(memstore.Options{}), membroker.New()
	var away atomic.Bool
	route := queues(&membroker.Publisher{Broker: broker, Before: func(ctx context.Context, m outbox.Message) error {
		if m.Topic == "q1" && away.Load() {
			return fault(ctx)
		}
		return nil
	}})
	config := relay.Config{Store: store, Limits: relay.Limits{InFlightMessages: 200}, Routes: []relay.Route{route}}
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
	if restart {
		_ = stop() // what hangs may have arrived
		r, stop = start(t, config)
		time.Sleep(time.Minute)
	}
	away.Store(false)
	time.Sleep(3 * time.Minute)
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
