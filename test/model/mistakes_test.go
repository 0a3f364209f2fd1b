package model

import (
	"testing"
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
	{UnsettledWhenBlocked, Instance{Writers: []Writer{one(1)}, InlineGaps: everywhere, Crashes: 1, Permanent: 1}},

	{ClosedNotLoaded, Instance{Writers: []Writer{one(1), one(1)}, InlineGaps: everywhere, Crashes: 1, Retryable: 1}},
	{FollowerTooEarly, Instance{Writers: []Writer{one(1), one(1)}, InlineGaps: everywhere, Permanent: 1}},
	{FollowersGoOn, Instance{Writers: []Writer{one(1), one(1)}, InlineGaps: everywhere, Retryable: 1}},
	{PromotedTooEarly, Instance{Writers: []Writer{one(1), one(1)}, InlineGaps: everywhere, Retryable: 1}},
	{NeverDemoted, Instance{Writers: []Writer{one(1), one(1), one(1)}, InlineGaps: everywhere, Retryable: 2, MaxPromoted: 2}},
	{StaleGoesOn, Instance{Writers: []Writer{one(1), one(1), one(1)}, InlineGaps: everywhere, Retryable: 2, MaxPromoted: 2}},
	{OnlyHeadsClose, Instance{Writers: []Writer{one(1), one(1), one(1)}, InlineGaps: everywhere, Retryable: 1}},
	{PromotedWhenSent, Instance{Writers: []Writer{one(1), one(1)}, InlineGaps: everywhere, Retryable: 1, Permanent: 1}},
	{HoldDoesNot, Instance{Writers: []Writer{one(1), one(1)}, InlineGaps: everywhere, Hold: true, Permanent: 1}},
	{DiscardForgets, Instance{Writers: []Writer{one(1), one(1)}, InlineGaps: everywhere, Hold: true, Permanent: 1, Discards: 1}},
	{ParkedBeforeOrder, Instance{Writers: []Writer{one(1), one(1), one(1)}, InlineGaps: everywhere, Retryable: 1}},
}

func TestPlanted(t *testing.T) {
	for _, p := range planted {
		t.Run(string(p.mistake), func(t *testing.T) {
			in := p.in
			in.Relays = max(in.Relays, 1)
			right := Explore(in, 2_000_000)
			if right.Broken != "" {
				t.Errorf("without the mistake: %s\n%s", right.Broken, right.Trace)
			}
			in.Mistake = p.mistake
			wrong := Explore(in, 2_000_000)
			t.Logf("%d states right, %d with it, depth %d", right.States, wrong.States, wrong.Depth)
			if wrong.Broken == "" {
				t.Error("not noticed")
			} else {
				t.Logf("%s\n%s", wrong.Broken, wrong.Trace)
			}
		})
	}
}
