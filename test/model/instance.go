package model

// Instance is a small case to be explored: who is there, and how much trouble
// there may be. The zero value of a bound is none of it.
type Instance struct {
	Writers []Writer
	Relays  int // 1 or 2; 0: 1

	PageSize    int // rows that one statement reads at most; 0: 8
	InlineGaps  int // missing numbers that are looked for in every read
	MaxPromoted int // blocked messages of a key that are due at a time; 0: 1
	Hold        bool

	Rollbacks  int // transactions that roll back
	Crashes    int // processes that are killed
	Stops      int // clean stops
	RunsOut    int // leases that run out although their relay lives
	LostAnswer int // publishes without an answer, whether they arrive or not
	Retryable  int // publishes that are refused and to be tried again
	Permanent  int // publishes that are refused for good
	Cuts       int // reads that stop early, since the rows are too large
	Retries    int // failed messages that an operator lets be tried again
	Releases   int // failed messages whose key an operator lets go on
	Discards   int // parked messages that an operator gives up

	// Quick publishes whatever may be published at once, and the broker
	// acknowledges it: for instances that are about something else.
	Quick bool
	// Slow lets others act while the transaction of a settle or takeover is
	// open; otherwise each is one step.
	Slow bool

	Mistake Mistake
}

// Writer is one transaction of an application. It locks the keys that it will
// enqueue under, gets an id, enqueues, and ends.
type Writer struct {
	Rows []Row // none: a transaction that never writes to the log
	// Stays: it never ends, and everything has to go on all the same.
	Stays bool
	// Before: it has committed before anything else happens.
	Before bool
}

// Row is one message.
type Row struct {
	Key  uint8 // 0: no key
	Void bool  // rolled back to a savepoint
}

// one is a transaction that enqueues one message under each of the keys.
func one(keys ...uint8) Writer {
	var w Writer
	for _, k := range keys {
		w.Rows = append(w.Rows, Row{Key: k})
	}
	return w
}

// before is the same, committed before anything else happens.
func before(keys ...uint8) Writer {
	w := one(keys...)
	w.Before = true
	return w
}

// What there may be only so much of.
const (
	rollbacks = iota
	crashes
	stops
	runsOut
	lostAnswers
	retryables
	permanents
	cuts
	retries
	releases
	discards
	kindsOfTrouble
)

func (i *Instance) allowed(trouble int) int {
	return [...]int{i.Rollbacks, i.Crashes, i.Stops, i.RunsOut, i.LostAnswer, i.Retryable, i.Permanent, i.Cuts, i.Retries, i.Releases, i.Discards}[trouble]
}

// Mistake is one rule of the protocol that is left out.
type Mistake string

// The mistakes that can be planted.
const (
	NoMistake Mistake = ""

	// In the log.
	NumberBeforeID Mistake = "the number is drawn before the transaction has an id"

	// In reading.
	NeverCalled         Mistake = "last_value of a sequence that was never called counts as drawn"
	GapsForgotten       Mistake = "the position moves over missing numbers without remembering them"
	NoFence             Mistake = "a missing number is given up without a fence"
	FenceTooEarly       Mistake = "the fence of the settle under way goes to what was found since"
	OnlyXip             Mistake = "ids at or above a snapshot's xmax count as finished"
	OlderSnapshot       Mistake = "what to look for is decided by the snapshot of the read before"
	PageBeforePass      Mistake = "the page is handed out before the pass that it waits for"
	PageGapsInPass      Mistake = "the pass looks for the missing numbers of the page that waits, too"
	PassHandsOutAll     Mistake = "a pass hands out what committed after its first statement"
	PassSeenLast        Mistake = "what a pass looked for counts as looked for at its last snapshot"
	LateAfterFresh      Mistake = "late rows are handed out after the page's"
	CutIsProbed         Mistake = "a read that stopped early counts as having looked for everything"
	LocksDecide         Mistake = "a missing number is given up on the locks' word without one more look"
	LocksForgetPrepared Mistake = "the locks of writers that are still open are not seen"

	// In the state and its fence.
	SettleWithoutToken   Mistake = "a settle does not look at the token"
	FenceBySubquery      Mistake = "a settle looks the token up in a sub-query"
	LoadBeforeUpdate     Mistake = "a takeover loads the state before it updates the cursor's row"
	BarePosition         Mistake = "a takeover starts at the bare position"
	HeldForgotten        Mistake = "messages in hand are not among the unsettled ones"
	TakesHeldLease       Mistake = "a takeover does not wait until the lease has run out"
	DeadlineUnchecked    Mistake = "the lease's deadline is not looked at before a publish"
	DeadlineFromAnswer   Mistake = "the lease's deadline counts from the renewal's answer"
	StopForgets          Mistake = "a stop gives the lease up before it has settled"
	SentWhenAsked        Mistake = "a message is recorded as sent when the broker is asked"
	UnansweredIsSent     Mistake = "a publish without an answer counts as sent"
	LoadedIsProbed       Mistake = "what a takeover loaded counts as looked for"
	UnsettledWhenBlocked Mistake = "a parked message stays unsettled"

	// In parking.
	ClosedNotLoaded    Mistake = "a takeover does not load which keys are closed"
	FollowerTooEarly   Mistake = "a follower is published before its head's outcome is committed"
	FollowersDoNotWait Mistake = "the next message of a key is published before the one in flight is acknowledged"
	HandedOutAgain     Mistake = "parked messages in hand are handed out again"
	NotParked          Mistake = "a message to be retried is settled and not parked"
	FollowersGoOn      Mistake = "the followers in hand go on when their head is to be retried"
	PromotedTooEarly   Mistake = "a blocked message is due while an earlier one is to be retried"
	NeverDemoted       Mistake = "blocked messages that were due stay so when an earlier one is to be retried again"
	StaleGoesOn        Mistake = "what the store handed out before a refusal was committed does not wait"
	OnlyHeadsClose     Mistake = "blocked messages do not keep their key closed"
	PromotedWhenSent   Mistake = "blocked messages become due only when a message of their key was sent"
	HoldDoesNot        Mistake = "a failed message does not hold its key"
	GivenBackOvertaken Mistake = "parked messages are asked for while a settle gives some of them back"
	ParkedBeforeOrder  Mistake = "of a key's blocked messages the latest becomes due"
)

// Mistakes are all that can be planted.
var Mistakes = []Mistake{
	NumberBeforeID, NeverCalled, GapsForgotten, NoFence, FenceTooEarly,
	OnlyXip, OlderSnapshot, PageBeforePass, PageGapsInPass, PassHandsOutAll,
	PassSeenLast, LateAfterFresh, CutIsProbed, LocksDecide, LocksForgetPrepared, SettleWithoutToken,
	FenceBySubquery, LoadBeforeUpdate, BarePosition, HeldForgotten, TakesHeldLease,
	DeadlineUnchecked, DeadlineFromAnswer, StopForgets, SentWhenAsked, UnansweredIsSent,
	LoadedIsProbed, UnsettledWhenBlocked, ClosedNotLoaded, FollowerTooEarly, FollowersDoNotWait,
	HandedOutAgain, NotParked, FollowersGoOn, PromotedTooEarly, NeverDemoted,
	StaleGoesOn, OnlyHeadsClose, PromotedWhenSent, HoldDoesNot, GivenBackOvertaken,
	ParkedBeforeOrder,
}
