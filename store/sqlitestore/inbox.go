package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

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

var (
	_ inbox.Store[*sql.Tx] = Inbox{}
	_ inbox.Forgetter      = Inbox{}
)

const (
	sqlRecord        = `INSERT INTO postrider_inbox (consumer, id) VALUES (?, ?) ON CONFLICT DO NOTHING`
	sqlForgetHandled = `DELETE FROM postrider_inbox WHERE consumer = ?1 AND id IN (SELECT id FROM postrider_inbox
	WHERE consumer = ?1 AND handled_at <= ` + sqlNow + ` - ?2 ORDER BY handled_at LIMIT ?3)`
)

// forgetPage is how many records one transaction deletes.
const forgetPage = 500

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

// Forget is as inbox.Forgetter says.
func (i Inbox) Forget(ctx context.Context, consumer string, older time.Duration) (n int64, err error) {
	for {
		result, err := i.DB.ExecContext(ctx, sqlForgetHandled, consumer, older.Microseconds(), forgetPage)
		var deleted int64
		if err == nil {
			deleted, err = result.RowsAffected()
		}
		if err != nil {
			return n, fmt.Errorf("sqlitestore: forget what consumer %s has handled: %w", consumer, err)
		}
		n += deleted
		if deleted < forgetPage {
			return n, nil
		}
	}
}
