package outbox

import "context"

// Publisher sends messages to a broker. Implementations live in broker/.
type Publisher interface {
	// Publish sends the messages and waits for the broker's acknowledgements.
	// It returns one Result per message, in the same order, always. It splits
	// by the broker's own count and byte limits, and returns once ctx ends:
	// what is not known to be acknowledged by then has an Unavailable error.
	// Safe for concurrent use.
	Publish(ctx context.Context, msgs []Message) []Result
}

// Result is what became of one message.
type Result struct {
	// Err is nil if and only if the broker acknowledged the message;
	// otherwise ClassOf(Err) decides what happens next.
	Err error
	// BrokerID is the id that the broker gave the message, where it gives one.
	BrokerID string
}
