package e2e

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/test/internal/programs"
)

// The queue cannot be reached for a while, under load.
func TestQueueAway(t *testing.T) {
	t.Parallel()
	away := time.Duration(testsize.Pick(6, 60)) * time.Second
	seed := testsize.Seed(t)
	s := newShop(t, seed, pgtest.Database(t))
	relay := s.relay()
	load := s.newLoad(testsize.Rand(seed, "load"))
	load.placeAll(100)
	placed := load.begin(400)
	await(t, programs.Patience, &s.broker.changed, "messages flow", func() string { return unless(s.broker.count(s.queue) > 150, "too few") })

	s.proxy.Down()
	down := time.Now()
	before := s.proxy.Connects()
	<-time.After(time.Second)
	first := s.proxy.Connects() - before
	placed()
	load.placeAll(200)
	<-time.After(time.Until(down.Add(away)))
	later := s.proxy.Connects() - before - first
	t.Logf("%d connects in the first second, %d later", first, later)
	// Everything that was on its way makes three attempts. Then one message
	// probes, with waits that grow from 0.1 s to 10 s.
	if most := 3 * 32; first > most {
		t.Errorf("%d connects in the first second, want at most %d", first, most)
	}
	if most := 3 * (5 + int(away/(8*time.Second))); later > most {
		t.Errorf("%d connects later, want at most %d", later, most)
	}
	if parked := s.parked(); len(parked) != 0 {
		t.Errorf("parked: %+v", parked)
	}
	relay.awaitMetric(`postrider_breaker_open{route="default"}`, func(v float64) bool { return v == 1 })

	s.proxy.Up()
	s.awaitArrivals(s.queue, programs.Patience)
	t.Logf("%d repetitions", s.checkArrivals(s.queue))
	for _, state := range []string{"retrying", "failed", "blocked"} {
		if n, err := relay.metric(`postrider_outcomes_total{route="default",state="` + state + `"}`); err != nil || n != 0 {
			t.Errorf("%v messages went %s (%v)", n, state, err)
		}
	}
	if code := relay.Terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// The queue refuses one order in seven the first time, among others that it
// takes: these alone are sent again.
func TestPartialBatchFailure(t *testing.T) {
	t.Parallel()
	seed := testsize.Seed(t)
	random := testsize.Rand(seed, "refusals")
	s := newShop(t, seed, pgtest.Database(t))
	var mu sync.Mutex
	sent, refused := map[string]int{}, map[string]bool{}
	s.proxy.Add(awsproxy.Rule{Target: "SendMessageBatch", Fault: awsproxy.FailEntries(func(e awsproxy.Entry) bool {
		id := orderOf(e.JSON)
		mu.Lock()
		defer mu.Unlock()
		sent[id]++
		// Never a whole request: that would mean that the queue is away.
		if e.Index == 0 || sent[id] > 1 || random.IntN(7) != 0 {
			return false
		}
		refused[id] = true
		return true
	}, "InternalError", false)})
	load := s.newLoad(testsize.Rand(seed, "load"))
	load.customers = 400 // a refusal holds its customer up for a second
	placed := testsize.Pick(500, 5000)
	load.placeAll(placed)
	relay := s.relay()
	s.awaitArrivals(s.queue, programs.Patience)
	if n := s.checkArrivals(s.queue); n != 0 {
		t.Errorf("%d messages arrived again", n)
	}
	mu.Lock()
	defer mu.Unlock()
	for id, n := range sent {
		if refused[id] && n != 2 || !refused[id] && n != 1 {
			t.Errorf("order %s was sent %d times, refused: %v", id, n, refused[id])
		}
	}
	if len(refused) < placed/20 {
		t.Errorf("only %d orders were refused", len(refused))
	}
	if n, err := relay.metric(`postrider_outcomes_total{route="default",state="retrying"}`); err != nil || int(n) != len(refused) {
		t.Errorf("%v attempts were spent on %d refusals (%v)", n, len(refused), err)
	}
	await(t, programs.Patience, &s.broker.changed, "nothing is set aside", func() string {
		return unless(len(s.parked()) == 0, "%d messages are", len(s.parked()))
	})
}

// orderOf is the order of an entry of SendMessageBatch.
func orderOf(entry string) string {
	var e struct{ MessageBody string }
	var o struct{ OrderID string }
	if json.Unmarshal([]byte(entry), &e) != nil || json.Unmarshal([]byte(e.MessageBody), &o) != nil {
		return ""
	}
	return o.OrderID
}
