package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/admin"
)

const (
	addAuditSQL = `INSERT INTO {s}.audit (who, action, route, filter, count, note) VALUES ($1, $2, $3, $4::text::json, $5, $6) RETURNING id, at`
	raiseSQL    = `UPDATE {s}.audit SET count = count + $2 WHERE id = $1`
	auditSQL    = `SELECT id, at, who, action, route, filter::text, count, note FROM {s}.audit WHERE $1::bigint = 0 OR id < $1 ORDER BY id DESC LIMIT $2`
)

// write runs fn in a transaction that waits for the disk whatever the server's
// setting is: what an operator was told stays so.
func (a *Admin) write(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, a.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, durableSQL); err != nil {
			return err
		}
		return fn(tx)
	})
}

// Change is as admin.Changer says.
func (a *Admin) Change(ctx context.Context, op admin.Operation, entry *admin.Entry) (changed []int64, err error) {
	written := *entry
	err = a.write(ctx, func(tx pgx.Tx) error {
		if changed, err = a.schema.Operate(ctx, tx, op); err != nil || len(changed) == 0 {
			return err
		}
		return a.record(ctx, tx, &written, int64(len(changed)))
	})
	if err != nil {
		return nil, fmt.Errorf("%s messages of shard %d of route %s: %w", op.Action, op.Shard, op.Route, err)
	}
	*entry = written
	return changed, nil
}

// record adds the entry, or raises its count.
func (a *Admin) record(ctx context.Context, tx pgx.Tx, entry *admin.Entry, count int64) error {
	entry.Count += count
	if entry.ID != 0 {
		tag, err := tx.Exec(ctx, a.schema.sql(raiseSQL), entry.ID, count)
		if err == nil && tag.RowsAffected() == 0 {
			err = errors.New("the record of this action is gone")
		}
		return err
	}
	var filter *string
	if entry.Filter != nil {
		text, err := json.Marshal(entry.Filter)
		if err != nil {
			return err
		}
		filter = new(string(text))
	}
	return tx.QueryRow(ctx, a.schema.sql(addAuditSQL), errorText(entry.By), entry.Action, entry.Route, filter, count, errorText(entry.Note)).
		Scan(&entry.ID, &entry.At)
}

// Audit is as admin.Auditor says.
func (a *Admin) Audit(ctx context.Context, before int64, limit int) ([]admin.Entry, error) {
	rows, err := a.db.Query(ctx, a.schema.sql(auditSQL), before, limit)
	if err == nil {
		var entries []admin.Entry
		if entries, err = pgx.CollectRows(rows, scanEntry); err == nil {
			return entries, nil
		}
	}
	return nil, fmt.Errorf("read what operators did: %w", err)
}

func scanEntry(row pgx.CollectableRow) (e admin.Entry, err error) {
	var filter *string
	if err = row.Scan(&e.ID, &e.At, &e.By, &e.Action, &e.Route, &filter, &e.Count, &e.Note); err != nil || filter == nil {
		return e, err
	}
	e.Filter = new(admin.Filter)
	// A later version may have written what this one does not know.
	if json.Unmarshal([]byte(*filter), e.Filter) != nil {
		e.Filter = nil
	}
	return e, nil
}
