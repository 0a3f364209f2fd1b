package pgstore

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/inbox"
)

const recordSQL = `INSERT INTO {s}.inbox (consumer, id) VALUES ($1, $2) ON CONFLICT DO NOTHING`

// Inbox records what consumers have handled, in the transaction of the effect.
// Schema's zero value is DefaultSchema. Safe for concurrent use.
type Inbox struct {
	DB     DB
	Schema Schema
}

var _ inbox.Store[pgx.Tx] = Inbox{}

// InTx runs fn in a transaction of its own.
func (i Inbox) InTx(ctx context.Context, fn func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, i.DB, fn)
}

// Record waits for a concurrent transaction that records the same, and reports
// false once that one has committed.
func (i Inbox) Record(ctx context.Context, tx pgx.Tx, consumer string, id uuid.UUID) (bool, error) {
	tag, err := tx.Exec(ctx, i.Schema.sql(recordSQL), consumer, id)
	return tag.RowsAffected() == 1, err
}
