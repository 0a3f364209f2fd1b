// Package outbox is what an application imports: it puts messages into the
// application's own transaction, so that a message exists if and only if the
// transaction committed. Everything else (relay, brokers, inbox) builds on the
// types declared here; the package itself needs no database driver.
package outbox

import (
	"time"

	"github.com/google/uuid"
)

// DefaultContentType is the content type of a message that names none.
const DefaultContentType = "application/json"

// Message is one row of the outbox. The zero value of every field but Topic is
// useful; Validate says what is refused.
type Message struct {
	// ID identifies the message for ever: consumers deduplicate by it. Zero:
	// Writer makes a version 7 UUID (RFC 9562), which sorts by time.
	ID uuid.UUID
	// Topic is the logical destination; routes select messages by it.
	Topic string
	// Key orders messages: first deliveries of equal keys within a route keep
	// the order of enqueueing. Empty: no order.
	Key string
	// Type is the event type, such as "order.created".
	Type string
	// Payload arrives byte for byte as it was written.
	Payload []byte
	// ContentType of the payload. Empty: DefaultContentType.
	ContentType string
	// Headers travel with the message. Any valid UTF-8.
	Headers map[string]string
	// NotBefore holds the message back until then, by the database's clock.
	// Zero: at once. Stored in microseconds.
	NotBefore time.Time
	// Expires is the message's own deadline, by the database's clock: once it
	// has passed the message is not published any more. Zero: never.
	Expires time.Time
	// CreatedAt is set by the store when the message is enqueued, by the
	// database's clock. Writers do not set it.
	CreatedAt time.Time
	// Replay is set by the relay where an operator sends the message again: a
	// number that no other replay of it has. Brokers that drop what they have
	// had already must tell the two apart by it. Writers do not set it. 0: as it
	// was enqueued.
	Replay int64
}

// NewID makes a message id: a version 7 UUID.
func NewID() (uuid.UUID, error) { return uuid.NewV7() }
