package inboxdb

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlitestore"
)

// openSQLite opens two pools. The one that writes has a single connection:
// SQLite has one writer at a time, and those who wait for a connection are
// served in turn, which those who wait for the file's lock are not.
func (d *DB) openSQLite(ctx context.Context, o Options) error {
	write, err := d.openPool()
	if err != nil {
		return err
	}
	write.SetMaxOpenConns(1)
	if err := sqlitestore.Migrate(ctx, write, sqlitestore.Options{}); err != nil {
		return err
	}
	err = migrate(o.Migrations, "sqlite", func(script string) error {
		_, err := write.ExecContext(ctx, script)
		return err
	})
	if err != nil {
		return err
	}
	if d.read, err = d.openPool("query_only(1)"); err != nil {
		return err
	}
	d.once = func(consumer string, effect Effect) inbox.Handler {
		return inbox.Once(sqlitestore.Inbox{DB: write}, consumer, func(ctx context.Context, tx *sql.Tx, m outbox.Message) error {
			return effect(ctx, sqliteTx{tx}, m)
		})
	}
	return nil
}

func (d *DB) openPool(pragmas ...string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", sqlitestore.DSN(d.where.Path, pragmas...))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	d.closers = append(d.closers, db.Close)
	return db, nil
}

type sqliteTx struct{ tx *sql.Tx }

func (t sqliteTx) Exec(ctx context.Context, statement string, args ...any) error {
	_, err := t.tx.ExecContext(ctx, statement, args...)
	return err
}
