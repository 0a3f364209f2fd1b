package admin

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/outbox"
)

// Reader looks at messages and routes. Each call reads a bounded part of the
// store, whatever it holds, but for Find.
type Reader interface {
	// Layout names the routes that the store knows, sorted.
	Layout(ctx context.Context) (Layout, error)
	// Status tells how the routes stand.
	Status(ctx context.Context, o StatusOptions) (Status, error)
	// Scan looks at the next messages of one shard of one route.
	Scan(ctx context.Context, s Scan) (Window, error)
	// Find returns the places of the messages with that id; none if there is no
	// such message. It may read the whole log, from its end.
	Find(ctx context.Context, id uuid.UUID) ([]Place, error)
	// Message returns what an application enqueued, from the log or from what is
	// parked on a route. ErrNotFound.
	Message(ctx context.Context, at Place) (m outbox.Message, inLog bool, err error)
}

// Layout is what there is to look through.
type Layout struct {
	Shards int
	Routes []string
	// Now is the time by the database's clock.
	Now time.Time
}

// Scan asks for messages of one shard of one route, in order of their numbers.
type Scan struct {
	Route string
	Shard int
	// After is the number after which to begin; UpTo the last to look at, 0: the
	// end.
	After, UpTo int64
	// Filter's States, Topic, Key, Type, Since and Until are to fit; the rest of
	// it does not matter here.
	Filter Filter
	// Look is how many messages to look at, at most, and Limit how many to
	// return. Both positive.
	Look, Limit int
}

// Window is what a Scan found.
type Window struct {
	Items []Item
	// Last is the number up to which everything was looked at.
	Last int64
	// Looked is how many messages that was.
	Looked int
	// More: there may be messages after Last.
	More bool
}

// Item is a message on one route.
type Item struct {
	Ref
	ID        uuid.UUID `json:"id"`
	Topic     string    `json:"topic"`
	Key       string    `json:"key"`
	Type      string    `json:"type"`
	CreatedAt time.Time `json:"created_at"`
	NotBefore time.Time `json:"not_before,omitzero"`
	Expires   time.Time `json:"expires,omitzero"`
	Standing            // on Route
}

// Standing is how a message stands on a route.
type Standing struct {
	State outbox.State `json:"state"`
	// Attempts spent on it.
	Attempts int `json:"attempts"`
	// Error is the last one, for people.
	Error string `json:"error,omitempty"`
	// DueAt is when it is tried again, or sent. Zero: not by the clock.
	DueAt time.Time `json:"due_at,omitzero"`
	// ChangedAt is when it got its state. Zero for what has no record of its own:
	// sent ones, and pending ones that were never put back or replayed.
	ChangedAt time.Time `json:"changed_at,omitzero"`
	// Holds: it failed, and the later ones of its key wait for an operator.
	Holds bool `json:"holds_key,omitempty"`
	// Replay is not 0 while it is sent again for an operator: a number that no
	// other replay of it has.
	Replay int64 `json:"replay,omitempty"`
}
