package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/test/internal/programs"
)

// Every message goes two ways. The queue at the end of one of them does not
// exist, which must not matter to the other, and is made later.
func TestRouteWithoutItsQueue(t *testing.T) {
	t.Parallel()
	seed := testsize.Seed(t)
	s := newShop(t, seed, pgtest.Database(t))
	ghost := s.queue + "-ghost"
	// The emulator's own answer would be another error.
	exists := s.proxy.Add(awsproxy.Rule{Target: "AmazonSQS", Containing: ghost, Fault: awsproxy.MissingQueue()})
	file := filepath.Join(t.TempDir(), "routes.yaml")
	text := fmt.Sprintf(`
database: %s
routes:
  - {name: ghost, topics: ["**"], to: "sqs://%s"}
  - {name: orders, topics: [orders], to: "sqs://%s"}
`, s.db, ghost, s.queue)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	relay := s.relay("--config", file)
	load := s.newLoad(testsize.Rand(seed, "load"))
	for range 50 {
		load.place(wish{customer: "nobody", amount: 1, fate: fate{rollBack: true}})
	}
	relay.holds("orders", shards)
	load.placeAll(testsize.Pick(400, 5000))
	s.awaitArrivals(s.queue, programs.Patience)
	relay.awaitMetric(`postrider_alarm{route="ghost"}`, func(v float64) bool { return v == 1 })
	if v, err := relay.metric(`postrider_alarm{route="orders"}`); err != nil || v != 0 {
		t.Errorf("the alarm of the other route is %v (%v)", v, err)
	}
	if n := s.checkArrivals(s.queue); n != 0 {
		t.Errorf("%d messages were sent again", n)
	}
	if n := s.broker.count(ghost); n != 0 {
		t.Errorf("%d messages reached the queue that does not exist", n)
	}
	if parked := s.parked(); len(parked) != 0 {
		t.Errorf("parked: %+v", parked)
	}
	lags := s.lags()
	median, worst := lags[len(lags)/2], lags[len(lags)-1]
	t.Logf("from the order to its arrival: p50 %v, worst %v", median, worst)
	// The other route tries again every 10 s in the end; a busy machine is
	// slow too, but not with every order.
	if median > 2*time.Second || worst > 20*time.Second {
		t.Errorf("messages were delayed: p50 %v, worst %v", median, worst)
	}

	if _, err := s.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &ghost}); err != nil {
		t.Fatal(err)
	}
	exists()
	s.awaitArrivals(ghost, programs.Patience)
	if n := s.checkArrivals(ghost); n != 0 {
		t.Errorf("%d messages were sent again to the late queue", n)
	}
	if code := relay.Terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.checkArrivals(s.queue)
}

// lags is how long orders took from their request to the queue, in ascending
// order.
func (s *shop) lags() (lags []time.Duration) {
	s.t.Helper()
	orders, _ := s.committed()
	for _, a := range s.broker.taken(s.queue) {
		placed, err := time.Parse(event.TimeLayout, orders[a.order].CreatedAt)
		if err != nil {
			s.t.Fatal(err)
		}
		lags = append(lags, a.at.Sub(placed))
	}
	slices.Sort(lags)
	return lags
}
