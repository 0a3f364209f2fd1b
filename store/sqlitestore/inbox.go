package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/google/uuid"

	"github.com/postrider/postrider/inbox"
)

// Inbox records handled messages in a migrated database, in the transaction
// that has the effect. It is safe for concurrent use.
type Inbox struct {
	// DB is where the consumer's effects happen. Store.DB, or a pool opened
	// with DSN. Required.
	DB *sql.DB
}

var _ inbox.Store[*sql.Tx] = Inbox{}

const sqlRecord = `INSERT INTO postrider_inbox (consumer, id) VALUES (?, ?) ON CONFLICT DO NOTHING`

// InTx runs fn in a transaction and commits it if fn returns nil.
func (i Inbox) InTx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := i.DB.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqlitestore: inbox: begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlitestore: inbox: commit: %w", err)
	}
	return nil
}

// Record notes that consumer handles the message. Only one transaction writes at
// a time, so one that notes the same is waited for.
func (Inbox) Record(ctx context.Context, tx *sql.Tx, consumer string, id uuid.UUID) (first bool, err error) {
	result, err := tx.ExecContext(ctx, sqlRecord, consumer, id[:])
	if err != nil {
		return false, fmt.Errorf("sqlitestore: record message %s: %w", id, err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return false, fmt.Errorf("sqlitestore: record message %s: %w", id, err)
	}
	return n == 1, nil
}
