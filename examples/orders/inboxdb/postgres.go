package inboxdb

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgstore"
)

func (d *DB) openPostgres(ctx context.Context, o Options) error {
	cfg, err := pgxpool.ParseConfig(d.where.URL.Reveal())
	if err != nil {
		return err
	}
	cfg.MaxConns = int32(o.Connections)
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return err
	}
	d.closers = append(d.closers, func() error { pool.Close(); return nil })
	schema := pgstore.Schema(o.Schema)
	if _, err := pgstore.Migrate(ctx, pool, pgstore.Options{Schema: schema}); err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// One process at a time: two that create the same table at once fail,
		// IF NOT EXISTS or not.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('inboxdb migrations', 0))`); err != nil {
			return err
		}
		return migrate(o.Migrations, "postgres", func(script string) error {
			_, err := tx.Exec(ctx, script)
			return err
		})
	})
	if err != nil {
		return err
	}
	d.read = stdlib.OpenDBFromPool(pool)
	d.closers = append(d.closers, d.read.Close)
	store := pgstore.Inbox{DB: pool, Schema: schema}
	d.once = func(consumer string, effect Effect) inbox.Handler {
		return inbox.Once(store, consumer, func(ctx context.Context, tx pgx.Tx, m outbox.Message) error {
			return effect(ctx, postgresTx{tx}, m)
		})
	}
	return nil
}

type postgresTx struct{ tx pgx.Tx }

func (t postgresTx) Exec(ctx context.Context, statement string, args ...any) error {
	_, err := t.tx.Exec(ctx, statement, args...)
	return err
}
