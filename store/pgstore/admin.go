package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/admin"
)

// Admin is what operators do with the store. Safe for concurrent use.
type Admin struct {
	db     DB
	schema Schema
}

var _ admin.Store = (*Admin)(nil)

// NewAdmin returns an Admin on the tables of a schema. db is a pool, usually.
// Looking needs the right to read, acting the rights that docs/postgresql.md
// grants to an operator.
func NewAdmin(db DB, schema Schema) *Admin { return &Admin{db: db, schema: schema} }

// statementLimit ends a statement of ours that takes far longer than any should.
const statementLimit = 30 * time.Second

// A plan is not worth compiling for a statement that reads a bounded number of
// rows, and the planner does not know that it does; nor that reading a table from
// its beginning may take long to come to the first row that fits.
const boundedSQL = `SELECT set_config('statement_timeout', $1, true), set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true)`

// read runs fn in a transaction that sees one state of the database.
func (a *Admin) read(ctx context.Context, fn func(tx pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, a.db, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, boundedSQL, fmt.Sprint(statementLimit.Milliseconds())); err != nil {
			return err
		}
		return fn(tx)
	})
}

const (
	// Whatever has a name of a route in it, so that nothing is overlooked.
	routesSQL = `SELECT route FROM {s}.cursor UNION SELECT name FROM {s}.route
		UNION SELECT unnest(routes) FROM {s}.member WHERE expires > clock_timestamp()`

	nowSQL = `SELECT clock_timestamp()`
)

// Layout is as admin.Reader says. ErrNoSchema if the tables are missing.
func (a *Admin) Layout(ctx context.Context) (admin.Layout, error) {
	status, err := CheckSchema(ctx, a.db, a.schema)
	if err != nil {
		return admin.Layout{}, err
	}
	layout := admin.Layout{Shards: status.Shards}
	rows, err := a.db.Query(ctx, `SELECT route FROM (`+a.schema.sql(routesSQL)+`) AS r ORDER BY route COLLATE "C"`)
	if err == nil {
		layout.Routes, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err == nil {
		err = a.db.QueryRow(ctx, nowSQL).Scan(&layout.Now)
	}
	if err != nil {
		return admin.Layout{}, fmt.Errorf("read the names of the routes: %w", err)
	}
	return layout, nil
}

// orZero is what a column holds that may be null.
func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
