package model

import (
	"testing"

	"github.com/postrider/postrider/internal/testsize"
)

// limit is how many states an instance may have.
const limit = 6_000_000

// instances are what the protocol has to hold in. Those that take long are for
// the full size.
var instances = []struct {
	name string
	full bool
	in   Instance
}{
	{"late and rolled back", false, Instance{Writers: []Writer{one(1, 1), one(1), {Rows: []Row{{0, true}}}}, InlineGaps: everywhere, Quick: true, Rollbacks: 1}},
	{"late and killed", false, Instance{Writers: []Writer{one(1, 1), one(1)}, InlineGaps: everywhere, Quick: true, Rollbacks: 1, Crashes: 1}},
	{"late, rolled back and killed", true, Instance{Writers: []Writer{one(1, 1), one(1), {Rows: []Row{{0, true}}}}, InlineGaps: everywhere, Quick: true, Rollbacks: 1, Crashes: 1}},
	{"a transaction that stays open", false, Instance{Writers: []Writer{{Stays: true}, one(1), one(1)}, InlineGaps: everywhere, Quick: true, Rollbacks: 1}},
	{"a writer that stays open", false, Instance{Writers: []Writer{{Rows: []Row{{0, false}}, Stays: true}, one(1), one(1)}, InlineGaps: everywhere, Quick: true}},

	{"large rows", false, Instance{Writers: []Writer{one(1, 1), one(1)}, InlineGaps: everywhere, Quick: true, Cuts: 2, Rollbacks: 1}},
	{"large rows in passes", false, Instance{Writers: []Writer{one(1, 1), one(1)}, PageSize: 2, Quick: true, Cuts: 1, Rollbacks: 1}},
	{"passes", false, Instance{Writers: []Writer{one(1, 1), one(1)}, PageSize: 1, Quick: true, Rollbacks: 1, Crashes: 1}},
	{"passes and pages", true, Instance{Writers: []Writer{one(1, 1), one(0), one(1)}, PageSize: 2, Quick: true, Rollbacks: 1}},
	{"passes beside a transaction that stays open", true, Instance{Writers: []Writer{{Stays: true}, one(1, 1), one(1)}, PageSize: 1, Quick: true, Rollbacks: 1, Crashes: 1}},

	{"takeover from one that lives", false, Instance{Writers: []Writer{before(1, 1)}, Relays: 2, Slow: true, InlineGaps: everywhere, RunsOut: 2}},
	{"takeover from one that died", false, Instance{Writers: []Writer{before(1, 1)}, Relays: 2, Slow: true, InlineGaps: everywhere, RunsOut: 1, Crashes: 1, Retryable: 1}},
	{"takeover from one that stopped", false, Instance{Writers: []Writer{before(1, 1)}, Relays: 2, InlineGaps: everywhere, RunsOut: 1, Stops: 1, Permanent: 1, LostAnswer: 1}},
	{"takeover with missing numbers", false, Instance{Writers: []Writer{one(1, 1)}, Relays: 2, InlineGaps: everywhere, RunsOut: 2, Quick: true}},
	{"takeover with parked messages", false, Instance{Writers: []Writer{before(1, 1)}, Relays: 2, InlineGaps: everywhere, Retryable: 2, RunsOut: 1, MaxPromoted: 2}},
	{"takeover of what is late", true, Instance{Writers: []Writer{one(1), one(1)}, Relays: 2, Slow: true, InlineGaps: everywhere, RunsOut: 1, Crashes: 1}},

	{"parked and new", false, Instance{Writers: []Writer{before(1, 1), one(1)}, InlineGaps: everywhere, Retryable: 2, Permanent: 1, Crashes: 1, MaxPromoted: 2}},
	{"parked, all at once", false, Instance{Writers: []Writer{before(1, 1, 1, 1, 1)}, InlineGaps: everywhere, Retryable: 3, Permanent: 1, MaxPromoted: 8}},
	{"parked, two at a time", false, Instance{Writers: []Writer{before(1, 1, 1, 1, 1)}, InlineGaps: everywhere, Retryable: 3, Permanent: 1, MaxPromoted: 2}},
	{"parked and killed", false, Instance{Writers: []Writer{before(1, 1, 1, 1)}, InlineGaps: everywhere, Retryable: 3, Crashes: 1, MaxPromoted: 2}},
	{"parked and late", true, Instance{Writers: []Writer{one(1), one(1, 1)}, InlineGaps: everywhere, Retryable: 2, Permanent: 1, Crashes: 1}},
	{"parked under two keys", true, Instance{Writers: []Writer{before(1, 1), one(1, 2), one(1)}, InlineGaps: everywhere, Retryable: 2, Permanent: 1, MaxPromoted: 2}},
	{"parked and stopped", true, Instance{Writers: []Writer{before(1, 1, 0), one(1)}, InlineGaps: everywhere, Retryable: 1, Permanent: 1, LostAnswer: 1, Stops: 1, MaxPromoted: 2}},

	{"an operator, release", false, Instance{Writers: []Writer{before(1, 1)}, InlineGaps: everywhere, Retryable: 1, Permanent: 2, Retries: 1, Discards: 1, Crashes: 1}},
	{"an operator, hold", false, Instance{Writers: []Writer{before(1, 1)}, Hold: true, InlineGaps: everywhere, Permanent: 2, Retries: 1, Releases: 1, Discards: 1, Crashes: 1}},
	{"an operator, hold, new ones", false, Instance{Writers: []Writer{before(1, 1), one(1)}, Hold: true, InlineGaps: everywhere, Permanent: 1, Retries: 1, Releases: 1, Discards: 1}},
	{"an operator and more, release", true, Instance{Writers: []Writer{before(1, 1, 1)}, InlineGaps: everywhere, Retryable: 1, Permanent: 2, Retries: 1, Discards: 1, Crashes: 1}},
	{"an operator and more, hold", true, Instance{Writers: []Writer{before(1, 1, 1)}, Hold: true, InlineGaps: everywhere, Retryable: 1, Permanent: 2, Retries: 1, Releases: 1, Discards: 1, Crashes: 1}},
}

// In no order of events is a promise broken.
func TestNoOrderOfEventsBreaksAPromise(t *testing.T) {
	t.Parallel()
	states := 0
	for _, i := range instances {
		if i.full && !testsize.Full() {
			continue
		}
		t.Run(i.name, func(t *testing.T) {
			r := exploreAll(t, i.in)
			states += r.States
			t.Logf("%d states, %d steps, the last after %d", r.States, r.Steps, r.Depth)
			if r.Broken != "" {
				t.Errorf("%s:\n%s", r.Broken, r.Trace)
			}
		})
	}
	t.Logf("%d states in all", states)
}

func exploreAll(t *testing.T, in Instance) Result {
	t.Helper()
	r, ok := Explore(in, limit)
	if !ok {
		t.Fatalf("more than %d states: make the instance smaller, or see in canonical.go why", limit)
	}
	return r
}
