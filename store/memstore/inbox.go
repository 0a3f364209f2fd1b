package memstore

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

// Inbox is an inbox.Store[*Tx]: it remembers, in Store, which messages a
// consumer has handled. It is safe for concurrent use.
type Inbox struct{ Store *Store }

// InTx runs fn in a transaction, commits it if fn returns nil and rolls it
// back otherwise, also when fn panics.
func (i Inbox) InTx(ctx context.Context, fn func(*Tx) error) error {
	tx := i.Store.Begin()
	defer tx.Rollback() //nolint:errcheck // it has ended if it was committed
	if err := fn(tx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memstore: not committed: %w", err)
	}
	return tx.Commit()
}

// Record notes inside tx that consumer handles the message; first is false if
// that was noted before. While another open transaction has noted the same, it
// waits for that one to end, or for ctx.
func (i Inbox) Record(ctx context.Context, tx *Tx, consumer string, id uuid.UUID) (first bool, err error) {
	s, r := i.Store, record{consumer, id}
	err = s.claim(ctx, tx, func() *Tx {
		holder := s.records[r]
		if holder == nil {
			first = true
			s.records[r] = tx
			tx.records = append(tx.records, r)
		}
		return holder
	})
	return first, err
}
