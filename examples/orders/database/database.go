// Package database opens the order service's database, PostgreSQL or SQLite,
// with the service's own tables and Postrider's beside them.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// Database is an open database. The order service uses DB and Inserter; only
// the demo, which has the relay in the same process, uses RelayStore.
type Database struct {
	DB       *sql.DB
	Inserter outbox.Inserter[*sql.Tx]

	relayStore func() (relay.Store, error)
	closers    []func() error
}

// Open connects to the database and creates what is missing in it. The schema
// is that of Postrider's tables in PostgreSQL; empty for the default.
func Open(ctx context.Context, where config.Database, schema string) (*Database, error) {
	var d *Database
	var dialect order.Dialect
	var err error
	switch where.Kind {
	case config.Postgres:
		dialect = order.PostgreSQL
		d, err = openPostgres(ctx, where.URL.Reveal(), schema)
	case config.SQLite:
		dialect = order.SQLite
		d, err = openSQLite(ctx, where.Path)
	default:
		return nil, errors.New("open the database: none is named")
	}
	if err != nil {
		return nil, fmt.Errorf("open the database %s: %w", where, err)
	}
	if err := order.Migrate(ctx, d.DB, dialect); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// RelayStore is the database as the relay sees it. It is closed with d.
func (d *Database) RelayStore() (relay.Store, error) { return d.relayStore() }

// Close closes everything that Open and RelayStore opened.
func (d *Database) Close() error {
	var errs []error
	for i := len(d.closers) - 1; i >= 0; i-- {
		errs = append(errs, d.closers[i]())
	}
	d.closers = nil
	return errors.Join(errs...)
}
