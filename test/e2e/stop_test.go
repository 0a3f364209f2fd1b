package e2e

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/test/internal/programs"
)

// A relay is stopped in the middle of its work, again and again: it ends well,
// and nothing is ever sent twice.
func TestCleanStopUnderLoad(t *testing.T) {
	t.Parallel()
	stops, each := testsize.Pick(10, 100), testsize.Pick(40, 150)
	seed := testsize.Seed(t)
	random := testsize.Rand(seed, "stops")
	s := newShop(t, seed, pgtest.Database(t))
	load := s.newLoad(testsize.Rand(seed, "load"))
	for i := range stops {
		m := moment{operation: "SendMessageBatch", stage: stage(random.IntN(2)), nth: 1 + random.IntN(testsize.Pick(5, 20))}
		relay := s.relay()
		var told atomic.Bool
		s.broker.once(m.operation, "", m.stage, m.nth, func() {
			relay.End(syscall.SIGTERM)
			told.Store(true)
			s.broker.changed.Tell()
		})
		placed := load.begin(each)
		await(t, programs.Patience, &s.broker.changed, "the stop", func() string {
			return unless(told.Load() || s.broker.distinct(s.queue) >= (i+1)*each, "it has work left and does not come to %v", m)
		})
		s.broker.forget()
		if !told.Load() {
			relay.End(syscall.SIGTERM)
		}
		if code := relay.Code(); code != 0 {
			t.Errorf("stopped at %v: exit code %d", m, code)
		}
		for _, sign := range []string{"panic", "goroutine ", "DATA RACE"} {
			if said := relay.Output.String(); strings.Contains(said, sign) {
				t.Errorf("stopped at %v: it says %q:\n%s", m, sign, said)
			}
		}
		placed()
		t.Logf("stopped at %v; %d messages have arrived", m, s.broker.count(s.queue))
	}
	s.sendTheRest()
	if n := s.checkArrivals(s.queue); n != 0 {
		t.Errorf("%d messages were sent again", n)
	}
}
