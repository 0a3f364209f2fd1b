package outbox

import "context"

// Publisher sends messages to a broker. Implementations live in broker/. One that
// wraps another has a method Unwrap() Publisher, by which the other one's
// capabilities, such as Resolver, are found.
type Publisher interface {
	// Publish sends the messages and waits for the broker's acknowledgements.
	// It returns one Result per message, in the same order, always. It splits
	// by the broker's own count and byte limits, and returns once ctx ends:
	// what is not known to be acknowledged by then has an Unavailable error.
	// Safe for concurrent use.
	Publish(ctx context.Context, msgs []Message) []Result
}

// Resolver is an optional capability of a Publisher whose messages go to
// different destinations: the relay then publishes to each of them on its own,
// so that one that is away, or slow, delays no other. A Publisher without it
// has one destination.
type Resolver interface {
	// Destination is where the message would go, as people write it and
	// without secrets: it appears in logs and figures. Empty: all messages go
	// to the same place. A message that has no valid destination has one all
	// the same, which Publish refuses. It is called for every message: it asks
	// nobody, and answers the same each time. Safe for concurrent use.
	Destination(m *Message) string
}

// Result is what became of one message.
type Result struct {
	// Err is nil if and only if the broker acknowledged the message;
	// otherwise ClassOf(Err) decides what happens next.
	Err error
	// BrokerID is the id that the broker gave the message, where it gives one.
	BrokerID string
}
