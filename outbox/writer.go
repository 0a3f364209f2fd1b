package outbox

import (
	"context"
	"errors"
	"fmt"
)

// Inserter writes messages inside the caller's transaction. Tx is the
// transaction type of one driver, so that a connection pool does not compile.
// Implementations: pgstore.Pgx, pgstore.SQL, sqlitestore.SQL, memstore.Store.
type Inserter[Tx any] interface {
	// Insert writes all messages, in order, or returns an error; then the
	// transaction must be rolled back. The messages are valid and have an id.
	Insert(ctx context.Context, tx Tx, msgs []Message) error
}

// KeyLocker is an optional capability of an Inserter, used by LockKeys.
type KeyLocker[Tx any] interface {
	// LockKeys takes one lock per distinct key, in an order that is the same
	// for every caller, and holds them until the transaction ends.
	LockKeys(ctx context.Context, tx Tx, keys []string) error
}

// Writer enqueues messages. It is safe for concurrent use.
type Writer[Tx any] struct {
	inserter Inserter[Tx]
}

// NewWriter returns a Writer on the given Inserter, which must not be nil.
func NewWriter[Tx any](inserter Inserter[Tx]) *Writer[Tx] {
	return &Writer[Tx]{inserter: inserter}
}

// Enqueue writes the messages inside tx. They are published if and only if tx
// commits. Either all of them are valid or none is written; the error then
// names each problem. After any other error roll tx back.
//
// The order of the arguments is the order of enqueueing. The caller's slice is
// not changed: set Message.ID, with NewID, to know the ids beforehand.
func (w *Writer[Tx]) Enqueue(ctx context.Context, tx Tx, msgs ...Message) error {
	if len(msgs) == 0 {
		return nil
	}
	ready := make([]Message, len(msgs))
	var errs []error
	for i := range msgs {
		m := msgs[i]
		if err := m.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("message %d: %w", i, err))
			continue
		}
		if m.ContentType == "" {
			m.ContentType = DefaultContentType
		}
		if m.ID == [16]byte{} {
			id, err := NewID()
			if err != nil {
				return fmt.Errorf("outbox: make a message id: %w", err)
			}
			m.ID = id
		}
		ready[i] = m
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("outbox: nothing enqueued: %w", err)
	}
	if err := w.inserter.Insert(ctx, tx, ready); err != nil {
		return fmt.Errorf("outbox: enqueue %d messages: %w", len(ready), err)
	}
	return nil
}

// LockKeys serialises the transactions that enqueue under the same keys, so
// that the order of enqueueing is the order of commits. Call it once, with all
// keys, before anything that the order depends on is read; the locks end with
// the transaction. It is not needed where the transaction already holds a row
// lock on whatever the key names. An Inserter without the capability yields
// errors.ErrUnsupported.
func (w *Writer[Tx]) LockKeys(ctx context.Context, tx Tx, keys ...string) error {
	locker, ok := w.inserter.(KeyLocker[Tx])
	if !ok {
		return fmt.Errorf("outbox: %T cannot lock keys: %w", w.inserter, errors.ErrUnsupported)
	}
	if len(keys) == 0 {
		return nil
	}
	if err := locker.LockKeys(ctx, tx, keys); err != nil {
		return fmt.Errorf("outbox: lock %d keys: %w", len(keys), err)
	}
	return nil
}
