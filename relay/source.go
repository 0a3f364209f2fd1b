package relay

import (
	"context"
	"errors"
	"time"

	"github.com/postrider/postrider/outbox"
)

// ErrHeld means that another relay holds the lease of this route and shard.
var ErrHeld = errors.New("another relay holds this shard of the route")

// ErrFenced means that the lease was lost to another relay (or expired and was
// taken): the call changed nothing, and no later call on this Lease will.
var ErrFenced = errors.New("the lease was lost: another relay took this shard of the route")

// Store is where messages rest. A key belongs to one shard for ever, so one
// (route, shard) pair is read by one relay at a time, which is what keeps the
// order. Implementations: source/poll (PostgreSQL), sqlitestore, memstore.
// Safe for concurrent use.
//
// It may have more capabilities: Sharer and Cleaner. One that wraps another Store
// has a method Unwrap() Store, by which the other one's are found.
type Store interface {
	// Shards is the number of shards, fixed when the store was created.
	Shards(ctx context.Context) (int, error)
	// Acquire takes the lease of one shard of one route and loads its state.
	// ErrHeld if another owner's lease has not expired yet; the same owner
	// gets a new lease at once, which fences its old one.
	Acquire(ctx context.Context, claim Claim) (Lease, error)
}

// Source hands messages out and records what became of them. Receive and
// Settle may run at the same time, each in one goroutine. An error other than
// the context's end makes the Lease unusable: wait until nothing is being
// published, close it and acquire anew. What was not settled is then handed
// out again.
type Source interface {
	// Receive blocks until there is something to hand out or ctx ends, and
	// returns at most max deliveries. New messages of the log come in order of
	// their number; late ones (a transaction that committed after later
	// numbers were handed out) come before any newer message that their key
	// could have. Parked messages come when they are due, in their key's
	// order: once a message is settled so that it closes its key (see
	// Outcome.Closes), the blocked ones behind it are due no more, though they
	// may have been. A scheduled message, and one of PlaceNone, comes when it is
	// due, whatever is parked of its key. Nothing is handed out twice by one
	// Lease, unless it was settled as Retrying, Pending, Blocked or Scheduled
	// and has come due, or an operator has changed it, of which every lease
	// hears within about a second. The slice is the caller's.
	Receive(ctx context.Context, max int) ([]Delivery, error)
	// Settle records outcomes in one transaction and extends the lease; with
	// no outcomes it only does the latter. If it returns an error nothing is
	// recorded (or, if the connection broke, that is unknown). The outcomes of
	// one key come in its order, in one call or in several. The slice is not
	// kept.
	// ErrFenced: another relay took over; nothing was changed.
	Settle(ctx context.Context, outcomes []Outcome) error
}

// Lease is one relay's hold on one shard of one route. It may have more
// capabilities: Recaller and DeathCounter. One that wraps another Lease has a
// method Unwrap() Lease, by which the other one's are found.
type Lease interface {
	Source
	// ClosedKeys are the keys that had parked messages in their way when the
	// lease was taken, with the number of those messages: as many of PlaceKept
	// are to come. Not to be changed.
	ClosedKeys() map[string]int
	// Deadline is when the lease ends, on this process's clock, counted from
	// before the last successful renewal was sent. Publish nothing after it.
	Deadline() time.Time
	// Close gives the lease up, durably, so that another relay can take it at
	// once, and frees its resources. After ErrFenced it only does the latter.
	Close(ctx context.Context) error
}

// capability finds what a store, lease or publisher, or one that it wraps, can do
// besides. Whoever asserts the type itself does not find it behind a wrapper.
func capability[T, W any](w W) (able T, ok bool) {
	for {
		if able, ok = any(w).(T); ok {
			return able, true
		}
		wrapper, wraps := any(w).(interface{ Unwrap() W })
		if !wraps {
			return able, false
		}
		w = wrapper.Unwrap()
	}
}

// Place is where a message stands in the order of its key.
type Place int8

const (
	// PlaceNext: it takes its place now, behind everything of its key that came
	// before it: new messages, and scheduled ones that have come due.
	PlaceNext Place = iota
	// PlaceKept: it was parked in its key's way and is one of those that
	// ClosedKeys counts, or that were settled so since.
	PlaceKept
	// PlaceNone: it has lost its place, waits for nobody of its key and holds
	// nobody up: one that failed, or expired, while its key went on, and that an
	// operator retries; and one that is replayed.
	PlaceNone
)

// Delivery is a message handed out.
type Delivery struct {
	Message outbox.Message
	// Seq is the message's number in its shard.
	Seq int64
	// State is StatePending for what is to be published. Anything else only is
	// to be settled so: StateScheduled or StateExpired, by the database's clock;
	// StateFailed for what cannot be read, with the reason in Error;
	// StateDiscarded, or StateFailed with Released, for what an operator changed.
	State outbox.State
	// Parked: it comes from the parked set, not from the log.
	Parked bool
	// Again: it was due, or had been read, before this lease was taken: if the
	// lease before ended by a death, it may have been in hand then.
	Again bool
	// Released: an operator lets the key of this failed message go on.
	Released bool
	// Place says what it has to wait for, and what waits for it.
	Place Place
	// Arrival orders the parked messages of a key. 0: it is not parked.
	Arrival int64
	// Attempts already spent on it.
	Attempts int
	// Error is why it failed, where State says so.
	Error string
}

// Changed reports whether an operator has settled the message already, so that
// the lease only has to hear of it.
func (d *Delivery) Changed() bool { return d.State == outbox.StateDiscarded || d.Released }

// Outcome is what became of a delivery.
type Outcome struct {
	Delivery Delivery
	// State is one of: Sent; Retrying (due again after RetryAfter); Failed;
	// Blocked (an earlier message of its key is parked, or was in this same
	// call); Scheduled; Expired; Discarded, only of what was delivered so;
	// Pending with a RetryAfter (it waits, like a retrying one, until its
	// destination may be back); Pending without one (returned: nothing is
	// recorded, and this lease does not hand it out again).
	//
	// What an operator discarded while it was in hand stays discarded, whatever
	// its State here, unless it was Sent.
	State outbox.State
	// Kept: the message stays in hand, and another outcome of it follows, for a
	// delivery that is Parked. This one is for the case that the lease ends before
	// that. Only with Retrying and with Pending that is not returned.
	Kept bool
	// Attempts spent by now, this one included.
	Attempts int
	// RetryAfter counts from the settling, on the database's clock. Of Pending
	// it is more than 0 if the message is to be parked.
	RetryAfter time.Duration
	// Error is the reason, for people. Empty for Sent.
	Error string
	// BrokerID is what the broker called it, for Sent.
	BrokerID string
}

// Returned reports whether the outcome only gives the delivery back: nothing is
// recorded.
func (o *Outcome) Returned() bool { return o.State == outbox.StatePending && o.RetryAfter <= 0 }

// Closes reports whether the message stands in its key's way once the outcome is
// recorded; hold is the claim's. For implementations of Store.
func (o *Outcome) Closes(hold bool) bool {
	d := &o.Delivery
	if d.Message.Key == "" || d.Place == PlaceNone {
		return false
	}
	switch o.State {
	case outbox.StateRetrying, outbox.StateBlocked:
		return true
	case outbox.StatePending:
		return !o.Returned()
	case outbox.StateFailed:
		return hold && !d.Released
	default:
		return false
	}
}
