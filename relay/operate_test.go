package relay_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// operate does something with the message of that payload, which must be parked.
func operate(t *testing.T, store *memstore.Store, action admin.Action, payload string) {
	t.Helper()
	for _, p := range store.Parked("orders") {
		if string(p.Message.Payload) != payload {
			continue
		}
		changed, err := store.Operate(t.Context(), admin.Operation{Action: action, Route: "orders", Shard: p.Shard, Seqs: []int64{p.Seq}})
		if err != nil || len(changed) != 1 {
			t.Fatalf("%s %s: %v, %v", action, payload, changed, err)
		}
		return
	}
	t.Fatalf("%s is not parked", payload)
}

// parkedAs are the parked messages as "payload state".
func parkedAs(store *memstore.Store) string {
	var all []string
	for _, p := range store.Parked("orders") {
		all = append(all, string(p.Message.Payload)+" "+string(p.State))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// A message that is retried blocks its own key, and no other one; nor does one
// that is scheduled for next week block anything.
func TestARetryingHeadBlocksOnlyItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
		faults := script{errors: map[string][]error{"1": times(3, errTest)}}
		_, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker, Before: faults.before})}})
		week := message("b", 9)
		week.NotBefore = time.Now().Add(7 * 24 * time.Hour)
		enqueue(t, store, message("a", 1), message("a", 2), week, message("b", 3), message("", 4))
		time.Sleep(time.Second / 2)
		if got := strings.Join(payloads(broker.Messages("orders")), " "); got != "3 4" {
			t.Errorf("beside the retried one arrived %q", got)
		}
		time.Sleep(time.Minute)
		if got := strings.Join(payloads(broker.Messages("orders")), " "); got != "3 4 1 2" {
			t.Errorf("then arrived %q", got)
		}
		if got := parkedAs(store); got != "9 scheduled" {
			t.Errorf("parked: %s", got)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// What an operator does with a message that failed, while the relay runs.
func TestOperatorUnderARunningRelay(t *testing.T) {
	for name, c := range map[string]struct {
		onFailure relay.OnFailure
		action    admin.Action
		before    string // arrived before the operator acts
		after     string
		parked    string
	}{
		"hold, retry":      {relay.Hold, admin.Retry, "1", "1 2 3 4 5", ""},
		"hold, release":    {relay.Hold, admin.Release, "1", "1 3 4 5", "2 failed"},
		"hold, discard":    {relay.Hold, admin.Discard, "1", "1 3 4 5", "2 discarded"},
		"release, retry":   {relay.Release, admin.Retry, "1 3 4", "1 3 4 2 5", ""},
		"release, discard": {relay.Release, admin.Discard, "1 3 4", "1 3 4 5", "2 discarded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
				faults := script{errors: map[string][]error{"2": times(1, outbox.Permanent(errTest))}}
				route := orders(&membroker.Publisher{Broker: broker, Before: faults.before})
				route.OnFailure = c.onFailure
				_, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{route}})
				enqueue(t, store, message("k", 1), message("k", 2), message("k", 3), message("k", 4))
				time.Sleep(time.Hour)
				arrived := func(when, want string) {
					t.Helper()
					if got := strings.Join(payloads(broker.Messages("orders")), " "); got != want {
						t.Errorf("%s the operator acts %q have arrived, want %q", when, got, want)
					}
				}
				arrived("before", c.before)
				operate(t, store, c.action, "2")
				time.Sleep(2 * time.Second)
				enqueue(t, store, message("k", 5))
				time.Sleep(time.Second)
				arrived("after", c.after)
				if got := parkedAs(store); got != c.parked {
					t.Errorf("parked: %q, want %q", got, c.parked)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// A replay tells itself from what was sent before, and arrives once.
func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(memstore.Options{Shards: 1}), membroker.New()
		var mu sync.Mutex
		var replays []int64
		_, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(&membroker.Publisher{Broker: broker, Before: func(_ context.Context, m outbox.Message) error {
			mu.Lock()
			defer mu.Unlock()
			replays = append(replays, m.Replay)
			return nil
		}})}})
		numbers(t, store, 5, "k")
		time.Sleep(time.Minute)
		changed, err := store.Operate(t.Context(), admin.Operation{Action: admin.Replay, Route: "orders", Seqs: []int64{1, 2, 3, 4, 5, 6}})
		if err != nil || len(changed) != 5 {
			t.Fatalf("replayed %v, %v", changed, err)
		}
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(payloads(broker.Messages("orders")), " "); got != "1 2 3 4 5 1 2 3 4 5" {
			t.Errorf("arrived %q", got)
		}
		if !slices.Equal(replays[:5], make([]int64, 5)) || slices.Contains(replays[5:], 0) {
			t.Errorf("replay numbers %v", replays)
		}
		if left := parkedAs(store); left != "" {
			t.Errorf("parked: %s", left)
		}
	})
}
