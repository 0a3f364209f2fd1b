package e2e

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/test/internal/programs"
)

// moment is when a process is killed: at a request of its own, or some time
// after it was started.
type moment struct {
	operation string
	stage     stage
	nth       int
	after     time.Duration // instead
}

func (m moment) String() string {
	if m.operation == "" {
		return m.after.String() + " after the start"
	}
	return fmt.Sprintf("%s %d, stage %d", m.operation, m.nth, m.stage)
}

// drawMoment draws at random. The requests are rather drawn than the time, since
// most of the time nothing is under way.
func drawMoment(random *rand.Rand, most int, operations ...string) moment {
	if random.IntN(4) == 0 {
		return moment{after: time.Duration(random.IntN(2000)) * time.Millisecond}
	}
	return moment{
		operation: operations[random.IntN(len(operations))],
		stage:     stage(random.IntN(2)),
		nth:       1 + random.IntN(most),
	}
}

// killAt kills the process at the moment, but not later than when idle says
// that it has nothing left to do. Only one process of the shop may make the
// moment's requests.
func (s *shop) killAt(p *process, m moment, idle func() bool) {
	s.t.Helper()
	var killed atomic.Bool
	kill := func() {
		p.Kill()
		killed.Store(true)
		s.broker.changed.Tell()
	}
	if m.operation == "" {
		defer time.AfterFunc(m.after, kill).Stop()
	} else {
		s.broker.once(m.operation, "", m.stage, m.nth, kill)
	}
	await(s.t, programs.Patience, &s.broker.changed, "kill at "+m.String(), func() string {
		return unless(killed.Load() || m.operation != "" && idle(), "it has work left and does not come to it")
	})
	s.broker.forget()
	p.Kill()
}

func TestKilledRelay(t *testing.T) {
	t.Parallel()
	kills, orders := testsize.Pick(8, 50), testsize.Pick(800, 5000)
	seed := testsize.Seed(t)
	random := testsize.Rand(seed, "kills")
	s := newShop(t, seed, pgtest.Database(t))
	s.consumer()
	load := s.newLoad(testsize.Rand(seed, "load"))
	for i := range kills {
		m := drawMoment(random, 30, "SendMessageBatch")
		relay := s.relay("--lease", "1s")
		placed := load.begin(orders / kills)
		s.killAt(relay, m, func() bool { return s.broker.distinct(s.queue) >= (i+1)*(orders/kills) })
		placed()
		t.Logf("killed at %v; %d messages have arrived", m, s.broker.count(s.queue))
	}
	load.placeAll(orders % kills)
	s.relay("--lease", "1s")
	s.awaitArrivals(s.queue, programs.Patience)
	s.awaitFulfilments()
	t.Logf("%d repetitions", s.checkArrivals(s.queue))
	s.checkFulfilments()
}

func TestKilledConsumer(t *testing.T) {
	t.Parallel()
	kills, orders := testsize.Pick(8, 50), testsize.Pick(800, 5000)
	seed := testsize.Seed(t)
	random := testsize.Rand(seed, "kills")
	s := newShop(t, seed, pgtest.Database(t))
	s.relay()
	load := s.newLoad(testsize.Rand(seed, "load"))
	for i := range kills {
		m := drawMoment(random, 10, "PutItem", "PutItem", "DeleteMessageBatch")
		if m.operation == "PutItem" {
			m.nth *= 10 // an order each
		}
		consumer := s.consumer()
		placed := load.begin(orders / kills)
		s.killAt(consumer, m, func() bool { return len(s.broker.stored(s.table)) >= (i+1)*(orders/kills) })
		placed()
		t.Logf("killed at %v; %d orders are fulfilled", m, len(s.broker.stored(s.table)))
	}
	load.placeAll(orders % kills)
	s.consumer()
	s.awaitFulfilments()
	s.checkArrivals(s.queue)
	s.checkFulfilments()
}
