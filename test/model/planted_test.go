package model

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/testsize"
)

// everywhere is InlineGaps where all missing numbers are looked for in every read.
const everywhere = maxNumbers

// planted are the mistakes, each in the smallest instance found that shows it.
var planted = []struct {
	mistake Mistake
	in      Instance
}{
	{NumberBeforeID, Instance{Writers: []Writer{one(0)}, InlineGaps: everywhere, Quick: true}},

	{NeverCalled, Instance{Writers: []Writer{one(0)}, InlineGaps: everywhere, Quick: true}},
	{GapsForgotten, Instance{Writers: []Writer{one(0)}, InlineGaps: everywhere, Quick: true}},
	{NoFence, Instance{Writers: []Writer{one(0)}, InlineGaps: everywhere, Quick: true}},
	{FenceTooEarly, Instance{Writers: []Writer{one(0), one(0)}, InlineGaps: everywhere, Quick: true}},
	{OnlyXip, Instance{Writers: []Writer{one(0)}, InlineGaps: everywhere, Quick: true}},
	{OlderSnapshot, Instance{Writers: []Writer{one(1), one(1), one(0)}, Quick: true}},
	{PageBeforePass, Instance{Writers: []Writer{one(1), one(1), one(0)}, Quick: true}},
	{PageGapsInPass, Instance{Writers: []Writer{one(1), one(1), one(0)}, Quick: true}},
	{PassHandsOutAll, Instance{Writers: []Writer{one(1, 1), one(0)}, PageSize: 1, Crashes: 1, Quick: true}},
	{PassSeenLast, Instance{Writers: []Writer{one(0, 0), one(0)}, PageSize: 1, Quick: true}},
	{LateAfterFresh, Instance{Writers: []Writer{one(1), one(1), one(0)}, InlineGaps: everywhere, Quick: true}},
	{CutIsProbed, Instance{Writers: []Writer{one(0, 0)}, InlineGaps: everywhere, Cuts: 1, Quick: true}},
	{LocksDecide, Instance{Writers: []Writer{one(0)}, InlineGaps: everywhere, Quick: true}},
	{LocksForgetPrepared, Instance{Writers: []Writer{one(0)}, InlineGaps: everywhere, Quick: true}},

	{SettleWithoutToken, Instance{Writers: []Writer{one(0)}, Relays: 2, InlineGaps: everywhere, Quick: true, RunsOut: 1}},
	{FenceBySubquery, Instance{Writers: []Writer{one(0)}, Relays: 2, InlineGaps: everywhere, Quick: true, RunsOut: 1, Slow: true}},
	{LoadBeforeUpdate, Instance{Writers: []Writer{one(0)}, Relays: 2, InlineGaps: everywhere, Quick: true, Stops: 1}},
	{BarePosition, Instance{Writers: []Writer{one(0)}, InlineGaps: everywhere, Quick: true, Crashes: 1}},
	{HeldForgotten, Instance{Writers: []Writer{one(0)}, InlineGaps: everywhere}},
	{TakesHeldLease, Instance{Writers: []Writer{one(0)}, Relays: 2, InlineGaps: everywhere}},
	{DeadlineUnchecked, Instance{Writers: []Writer{one(0)}, Relays: 2, InlineGaps: everywhere, RunsOut: 1}},
	{DeadlineFromAnswer, Instance{Writers: []Writer{one(0)}, Relays: 2, InlineGaps: everywhere, RunsOut: 1}},
	{StopForgets, Instance{Writers: []Writer{one(0)}, InlineGaps: everywhere, Stops: 1}},
	{SentWhenAsked, Instance{Writers: []Writer{one(0)}, InlineGaps: everywhere}},
	{UnansweredIsSent, Instance{Writers: []Writer{one(0)}, InlineGaps: everywhere, LostAnswer: 1}},
	{LoadedIsProbed, Instance{Writers: []Writer{one(1), one(1)}, PageSize: 1, Crashes: 1, Quick: true}},
	{UnsettledWhenBlocked, Instance{Writers: []Writer{one(1)}, InlineGaps: everywhere, Crashes: 1, Permanent: 1}},

	{ClosedNotLoaded, Instance{Writers: []Writer{before(1), one(1)}, InlineGaps: everywhere, Crashes: 1, Retryable: 1}},
	{FollowerTooEarly, Instance{Writers: []Writer{before(1, 1)}, InlineGaps: everywhere, Permanent: 1}},
	{FollowersDoNotWait, Instance{Writers: []Writer{before(1, 1)}, InlineGaps: everywhere}},
	{HandedOutAgain, Instance{Writers: []Writer{before(1)}, InlineGaps: everywhere, Retryable: 1}},
	{NotParked, Instance{Writers: []Writer{before(1)}, InlineGaps: everywhere, Retryable: 1}},
	{FollowersGoOn, Instance{Writers: []Writer{before(1, 1)}, InlineGaps: everywhere, Retryable: 1}},
	{PromotedTooEarly, Instance{Writers: []Writer{before(1, 1)}, InlineGaps: everywhere, Retryable: 1}},
	{NeverDemoted, Instance{Writers: []Writer{before(1, 1, 1)}, InlineGaps: everywhere, Retryable: 2, MaxPromoted: 2}},
	{StaleGoesOn, Instance{Writers: []Writer{before(1, 1, 1)}, InlineGaps: everywhere, Retryable: 2, MaxPromoted: 2}},
	{OnlyHeadsClose, Instance{Writers: []Writer{before(1, 1), one(1)}, InlineGaps: everywhere, Retryable: 1}},
	{PromotedWhenSent, Instance{Writers: []Writer{before(1, 1)}, InlineGaps: everywhere, Retryable: 1, Permanent: 1}},
	{HoldDoesNot, Instance{Writers: []Writer{before(1, 1)}, InlineGaps: everywhere, Hold: true, Permanent: 1}},
	{GivenBackOvertaken, Instance{Writers: []Writer{before(1, 1, 1, 1, 1)}, InlineGaps: everywhere, Retryable: 2, MaxPromoted: 2}},
	{ParkedBeforeOrder, Instance{Writers: []Writer{before(1, 1, 1)}, InlineGaps: everywhere, Retryable: 1}},
}

// Every rule of the protocol is needed: without it there is an order of events
// that breaks a promise, and none with it.
func TestEveryMistakeIsFound(t *testing.T) {
	t.Parallel()
	right := map[string]Result{} // by instance
	states := 0
	for _, p := range planted {
		t.Run(string(p.mistake), func(t *testing.T) {
			r, done := right[fmt.Sprint(p.in)]
			if !done {
				r = exploreAll(t, p.in)
				right[fmt.Sprint(p.in)] = r
				states += r.States
			}
			if r.Broken != "" {
				t.Errorf("without the mistake: %s\n%s", r.Broken, r.Trace)
			}
			in := p.in
			in.Mistake = p.mistake
			wrong := exploreAll(t, in)
			states += wrong.States
			t.Logf("%d states without it, %d with it", r.States, wrong.States)
			if wrong.Broken == "" {
				t.Fatal("nothing was noticed")
			}
			if !strings.HasPrefix(wrong.Trace, "  1. ") || strings.Contains(wrong.Trace, lost) {
				t.Error("the way is not told")
			}
			t.Logf("%s:\n%s", wrong.Broken, wrong.Trace)
		})
	}
	t.Logf("%d states in all", states)
}

// Every mistake that can be planted is.
func TestEveryMistakeIsPlanted(t *testing.T) {
	for _, m := range Mistakes {
		n := 0
		for _, p := range planted {
			if p.mistake == m {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%q is planted %d times", m, n)
		}
	}
	if len(planted) != len(Mistakes) {
		t.Errorf("%d mistakes are planted, there are %d", len(planted), len(Mistakes))
	}
}

// What the explorer takes for one state, and the orders that it leaves out, make
// no difference to what it finds.
func TestShortCutsHideNothing(t *testing.T) {
	t.Parallel()
	right := map[string]bool{} // instances that are done
	compared := 0
	for _, p := range planted {
		for _, mistake := range []Mistake{NoMistake, p.mistake} {
			if mistake == NoMistake {
				if right[fmt.Sprint(p.in)] {
					continue
				}
				right[fmt.Sprint(p.in)] = true
			}
			m := newModel(p.in)
			m.Mistake, m.plain = mistake, true
			r, ok := explore(m, testsize.Pick(40_000, limit))
			switch {
			case !ok: // too large without short cuts
			case (r.Broken != "") != (mistake != NoMistake):
				t.Errorf("%s, planted: %t, found without short cuts: %q\n%s", p.mistake, mistake != NoMistake, r.Broken, r.Trace)
			default:
				compared++
			}
		}
	}
	t.Logf("%d compared", compared)
	if compared < len(planted) {
		t.Errorf("%d comparisons are too few", compared)
	}
}
