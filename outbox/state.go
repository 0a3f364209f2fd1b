package outbox

// State is where a message stands on one route.
type State string

const (
	StatePending   State = "pending"   // waits for its first outcome
	StateSent      State = "sent"      // acknowledged by the broker
	StateRetrying  State = "retrying"  // refused; tried again when due
	StateBlocked   State = "blocked"   // waits behind an earlier message of its key
	StateScheduled State = "scheduled" // its NotBefore is still to come
	StateFailed    State = "failed"    // given up by Postrider, kept with its error
	StateExpired   State = "expired"   // its Expires passed before it was sent
	StateDiscarded State = "discarded" // given up by an operator
)
