// Package inbox is the consumer's side: a handler's effect happens once per
// message and consumer, because the record of having handled a message commits
// in the same transaction as the effect.
package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/outbox"
)

// Handler deals with one message. A nil error means that it is done and may be
// forgotten by the broker; any other leaves it there, to come again.
type Handler func(ctx context.Context, m outbox.Message) error

// Consumer receives from a broker. Implementations live in broker/.
type Consumer interface {
	// Consume calls handle for each message, some at the same time, until ctx
	// ends; then it takes nothing new, lets running handlers finish (their
	// context is not cancelled), acknowledges what they finished, and returns
	// nil. It returns an error only if it can never go on. A message is
	// acknowledged only after its handler returned nil.
	Consume(ctx context.Context, handle Handler) error
}

// Store remembers which messages a consumer has handled. Implementations:
// pgstore.Inbox, sqlitestore.Inbox, memstore.Inbox, dynamoinbox.Store.
type Store[Tx any] interface {
	// InTx runs fn in a transaction and commits it if fn returns nil.
	InTx(ctx context.Context, fn func(Tx) error) error
	// Record notes, inside tx, that consumer handles the message. first is
	// false if that was noted before; a transaction that notes the same at the
	// same time is waited for.
	Record(ctx context.Context, tx Tx, consumer string, id uuid.UUID) (first bool, err error)
}

// Forgetter is what a Store may be besides: it deletes old records. (Those of
// dynamoinbox.Store end by themselves.)
type Forgetter interface {
	// Forget deletes what the consumer handled longer ago than that, by the
	// store's clock, in short transactions, and returns how much that was, also
	// with an error. A message that comes again after its record is deleted has
	// its effect again: keep records for longer than a broker keeps messages,
	// dead letters and replays included. Call it now and then, from one place or
	// several.
	Forget(ctx context.Context, consumer string, older time.Duration) (int64, error)
}

// Once wraps effect so that what it does with tx happens exactly once per
// message id and consumer name. A message that was handled before is a
// success without effect.
func Once[Tx any](store Store[Tx], consumer string, effect func(ctx context.Context, tx Tx, m outbox.Message) error) Handler {
	return func(ctx context.Context, m outbox.Message) error {
		if m.ID == uuid.Nil {
			return outbox.Permanent(fmt.Errorf("inbox: message on topic %q has no id: nothing tells its copies apart", m.Topic))
		}
		return store.InTx(ctx, func(tx Tx) error {
			first, err := store.Record(ctx, tx, consumer, m.ID)
			if err != nil || !first {
				return err
			}
			return effect(ctx, tx, m)
		})
	}
}
