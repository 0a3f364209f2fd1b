package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/bench/contender"
)

// database is one contender's.
type database struct {
	url   string
	pool  *pgxpool.Pool
	fresh int // messages that nobody has read, or that a new reader can read
}

// database returns the contender's database, made when it is first needed.
func (b *bench) database(ctx context.Context, e contender.Entry) (*database, error) {
	if d := b.databases[e.ID]; d != nil {
		return d, nil
	}
	name := "bench_" + e.ID
	if _, err := b.admin.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return nil, err
	}
	d := &database{url: b.server.URL(name)}
	var err error
	if d.pool, err = pgxpool.New(ctx, d.url); err != nil {
		return nil, err
	}
	b.databases[e.ID] = d
	if err := e.Contender.Setup(ctx, d.pool); err != nil {
		return nil, fmt.Errorf("%s: make its tables: %w", e.Name, err)
	}
	return d, nil
}

// fill leaves exactly n messages to be read, vacuumed and on the disk.
func (b *bench) fill(ctx context.Context, e contender.Entry, n int) (*database, error) {
	d, err := b.database(ctx, e)
	if err != nil {
		return nil, err
	}
	if _, again := e.Contender.(contender.Rereads); again && d.fresh == n {
		_, err := b.admin.Exec(ctx, "CHECKPOINT")
		return d, err
	}
	d.fresh = 0
	if err := e.Contender.Reset(ctx, d.pool); err != nil {
		return nil, fmt.Errorf("%s: empty its tables: %w", e.Name, err)
	}
	if err := b.more(ctx, d, e, 0, n); err != nil {
		return nil, err
	}
	d.fresh = n
	return d, nil
}

// more adds n messages, numbered from first.
func (b *bench) more(ctx context.Context, d *database, e contender.Entry, first, n int) error {
	if err := contender.Source(ctx, d.pool, first, n); err != nil {
		return fmt.Errorf("%s: make messages: %w", e.Name, err)
	}
	if err := e.Contender.Fill(ctx, d.pool); err != nil {
		return fmt.Errorf("%s: fill its tables: %w", e.Name, err)
	}
	return b.settle(ctx, d)
}

// tablesSQL lists the contender's tables.
const tablesSQL = `SELECT coalesce(string_agg(c.oid::regclass::text, ', '), '') FROM pg_class AS c
	JOIN pg_namespace AS n ON n.oid = c.relnamespace
	WHERE c.relkind = 'r' AND c.relname <> 'bench_source' AND c.relpersistence <> 't' AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'`

// settle lets the server do now what it would do during a run.
func (b *bench) settle(ctx context.Context, d *database) error {
	var tables string
	if err := d.pool.QueryRow(ctx, tablesSQL).Scan(&tables); err != nil {
		return err
	}
	if _, err := d.pool.Exec(ctx, "VACUUM (ANALYZE) "+tables); err != nil {
		return err
	}
	_, err := b.admin.Exec(ctx, "CHECKPOINT")
	return err
}

// forget drops the contender's database.
func (b *bench) forget(ctx context.Context, e contender.Entry) {
	if d := b.databases[e.ID]; d != nil {
		d.pool.Close()
		delete(b.databases, e.ID)
		// Its disk space is all that it could cost: the server goes with the run.
		_, _ = b.admin.Exec(ctx, "DROP DATABASE bench_"+e.ID+" WITH (FORCE)")
	}
}

// reader is a name that nobody has read under.
func (b *bench) reader() string {
	b.readers++
	return fmt.Sprintf("reader-%d", b.readers)
}
