package admin

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/outbox"
)

var (
	// ErrNoRoute means that the store knows no such route.
	ErrNoRoute = errors.New("there is no such route")
	// ErrServed means that a relay serves the route.
	ErrServed = errors.New("a relay serves the route")
)

// Unknown is the state of a message that the route passed before its topics were
// changed: whether its filter took the message then is not recorded.
const Unknown outbox.State = "unknown"

// Reader looks at messages and routes. Each statement reads a bounded part of
// the store.
type Reader interface {
	// Status tells how the routes stand.
	Status(ctx context.Context) (Status, error)
	// List returns messages that fit the filter in order of route, shard and
	// number, without their payloads and headers.
	List(ctx context.Context, q Query) (Page, error)
	// Message returns one message of the log, or one that is only parked, with
	// how it stands on every route that takes it. ErrNotFound.
	Message(ctx context.Context, at Ref) (Detail, error)
}

// ErrNotFound means that the store has no such message.
var ErrNotFound = errors.New("there is no such message")

// Query asks for one page of messages.
type Query struct {
	Filter Filter
	// After is the place after which the page begins; zero: the first page.
	After Ref
	// Limit is how many messages the page has at most.
	Limit int
	// Look is how many messages are looked at, at most, before the page ends
	// without being full.
	Look int
}

// Page is a part of a list.
type Page struct {
	Items []Item `json:"items"`
	// Next is where the list goes on; nil: it is complete.
	Next *Ref `json:"next,omitempty"`
	// Looked is how many messages were looked at.
	Looked int `json:"looked"`
}

// Item is a message on one route.
type Item struct {
	Ref
	ID          uuid.UUID `json:"id"`
	Topic       string    `json:"topic"`
	Key         string    `json:"key"`
	Type        string    `json:"type"`
	ContentType string    `json:"content_type"`
	CreatedAt   time.Time `json:"created_at,omitzero"`
	NotBefore   time.Time `json:"not_before,omitzero"`
	Expires     time.Time `json:"expires,omitzero"`
	Size        int       `json:"payload_bytes"`
	Standing              // on Route
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
	// ChangedAt is when it got its state. Zero for pending and sent ones.
	ChangedAt time.Time `json:"changed_at,omitzero"`
	// Released: it failed, and its key goes on all the same.
	Released bool `json:"released,omitempty"`
	// Replay counts how often an operator has sent it again.
	Replay int `json:"replay,omitempty"`
}

// Detail is everything about one message.
type Detail struct {
	Shard   int            `json:"shard"`
	Seq     int64          `json:"seq"`
	Message outbox.Message `json:"-"`
	// InLog: it is still in the log, so it can be replayed.
	InLog  bool            `json:"in_log"`
	Routes []RouteStanding `json:"routes"`
}

// RouteStanding is how a message stands on one route.
type RouteStanding struct {
	Route string `json:"route"`
	Standing
}
