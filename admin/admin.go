// Package admin is what an operator does with messages and routes: look, retry,
// release, discard, replay, pause, remove. It is one Go API for the command
// line, an HTTP API and a dashboard; what it needs of a store are the small
// interfaces here, which the stores implement.
//
// Every action is recorded in the table audit, in the transaction that does it.
package admin

import (
	"context"
	"errors"
)

var (
	// ErrNoRoute means that the store knows no such route.
	ErrNoRoute = errors.New("there is no such route")
	// ErrServed means that a relay serves the route.
	ErrServed = errors.New("a relay serves the route")
	// ErrNotFound means that the store has no such message.
	ErrNotFound = errors.New("there is no such message")
)

// Action is what an operator does with messages.
type Action string

const (
	// Retry makes a failed, retrying, expired or discarded message due at once.
	// Its attempts start anew, and the time until which it could be sent
	// (Expires) no longer counts.
	Retry Action = "retry"
	// Release lets the key of a failed message go on that waits for it under
	// on_failure: hold. The message stays failed.
	Release Action = "release"
	// Discard gives a retrying, blocked, scheduled, failed or expired message up,
	// and a pending one that has a record of its own: it was put back untried, or
	// is replayed. What waits behind it goes on.
	Discard Action = "discard"
	// Replay sends again what counts as done and is still in the log. It keeps
	// no order with other messages of its key, and holds none of them up.
	Replay Action = "replay"
)

// MaxOperation is how many messages one Operation names at most.
const MaxOperation = 1000

// Operation is one action on some messages of one shard of one route.
type Operation struct {
	Action Action
	Route  string
	Shard  int
	// Seqs are the messages' numbers, in ascending order and each once; at most
	// MaxOperation.
	Seqs []int64
}

// Operate does an Operation inside the transaction that also records it, and
// returns the numbers of the messages that it changed. Every store has one. It
// works while a relay has the lease of the shard, and while none has: whatever
// the relay knows (which keys are closed, what is due) follows within a moment,
// nothing is lost, and a settle that is under way and the operation wait for
// each other. A message whose state the Action does not take is left alone and
// not returned. One that the relay is just publishing may be sent all the same:
// then sent is what it is, whatever the Action.
type Operate[Tx any] func(ctx context.Context, tx Tx, op Operation) (changed []int64, err error)

// Store is everything that Admin asks of a store.
type Store interface {
	Reader
	Changer
	Router
	Auditor
}

// Changer changes messages.
type Changer interface {
	// Change does op and records it in one transaction, and returns the numbers
	// of the messages that it changed. An entry without ID is new, and gets one
	// if anything was changed; one with an ID has its count raised.
	Change(ctx context.Context, op Operation, entry *Entry) (changed []int64, err error)
}

// Router pauses and removes routes.
type Router interface {
	// SetPaused pauses the route or lets it go on, and reports whether that is
	// news, in which case it is recorded. ErrNoRoute if no relay ever had such a
	// route and it is not paused.
	SetPaused(ctx context.Context, route string, paused bool, entry *Entry) (changed bool, err error)
	// RemoveRoute deletes everything that the store knows of the route, in
	// transactions of bounded size; one that is interrupted is finished by
	// another call. ErrServed while a relay has a lease on it, unless force.
	// ErrNoRoute if there is nothing of it.
	RemoveRoute(ctx context.Context, route string, force bool, entry *Entry) (Removed, error)
}

// Auditor tells what operators did.
type Auditor interface {
	// Audit returns entries from the newest to the oldest, at most limit,
	// with IDs below before (0: from the newest).
	Audit(ctx context.Context, before int64, limit int) ([]Entry, error)
}
