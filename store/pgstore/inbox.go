package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/inbox"
)

const (
	recordSQL = `INSERT INTO {s}.inbox (consumer, id) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	forgetSQL = `DELETE FROM {s}.inbox WHERE ctid = ANY (ARRAY(SELECT ctid FROM {s}.inbox
		WHERE consumer = $1 AND handled_at <= statement_timestamp() - $2 * interval '1 microsecond' ORDER BY handled_at LIMIT $3))`
)

// forgetPage is how many records one transaction deletes.
const forgetPage = 1000

// Inbox records what consumers have handled, in the transaction of the effect.
// Schema's zero value is DefaultSchema. Safe for concurrent use.
type Inbox struct {
	DB     DB
	Schema Schema
}

var (
	_ inbox.Store[pgx.Tx] = Inbox{}
	_ inbox.Forgetter     = Inbox{}
)

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

// Forget is as inbox.Forgetter says. It needs the right to delete from the table.
func (i Inbox) Forget(ctx context.Context, consumer string, older time.Duration) (n int64, err error) {
	for {
		tag, err := i.DB.Exec(ctx, i.Schema.sql(forgetSQL), consumer, older.Microseconds(), forgetPage)
		if err != nil {
			return n, fmt.Errorf("forget what consumer %s has handled: %w", consumer, err)
		}
		n += tag.RowsAffected()
		if tag.RowsAffected() < forgetPage {
			return n, nil
		}
	}
}
