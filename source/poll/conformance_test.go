package poll_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/conformance"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
)

func TestStoreWithPgx(t *testing.T) { conformance.Store(t, pgxHarness(open(t))) }

func TestSharing(t *testing.T) { conformance.Sharing(t, pgxHarness(open(t))) }

func TestRetention(t *testing.T) { conformance.Retention(t, pgxHarness(open(t))) }

func TestAdmin(t *testing.T) { conformance.Admin(t, pgxHarness(open(t))) }

func pgxHarness(pool *pgxpool.Pool) conformance.Factory[pgx.Tx] {
	return func(t testing.TB, shards int) conformance.Harness[pgx.Tx] {
		h := harness[pgx.Tx](t, pool, shards)
		h.Inserter = pgstore.Pgx{Schema: schemaOf(t)}
		h.Begin = pool.Begin
		h.Commit = func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }
		h.Rollback = func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }
		h.Savepoint = func(ctx context.Context, tx pgx.Tx, name string) error {
			_, err := tx.Exec(ctx, "SAVEPOINT "+name)
			return err
		}
		h.RollbackTo = func(ctx context.Context, tx pgx.Tx, name string) error {
			_, err := tx.Exec(ctx, "ROLLBACK TO SAVEPOINT "+name)
			return err
		}
		return h
	}
}

func TestStoreWithDatabaseSQL(t *testing.T) {
	pool := open(t)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { db.Close() })
	conformance.Store(t, func(t testing.TB, shards int) conformance.Harness[*sql.Tx] {
		h := harness[*sql.Tx](t, pool, shards)
		h.Inserter = pgstore.SQL{Schema: schemaOf(t)}
		h.Begin = func(ctx context.Context) (*sql.Tx, error) { return db.BeginTx(context.WithoutCancel(ctx), nil) }
		h.Commit = func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }
		h.Rollback = func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }
		return h
	})
}

// open returns a pool on a database of the test's own.
func open(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), pgtest.Database(t)+"&pool_max_conns=40")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

var (
	schemas  atomic.Int64
	schemaIn sync.Map // of testing.TB
)

// schemaOf is the schema that harness made for the test.
func schemaOf(t testing.TB) pgstore.Schema {
	schema, _ := schemaIn.Load(t)
	return schema.(pgstore.Schema)
}

// harness makes a store in a schema of its own, whose name needs quoting.
func harness[Tx any](t testing.TB, pool *pgxpool.Pool, shards int) conformance.Harness[Tx] {
	t.Helper()
	schema := pgstore.Schema(fmt.Sprintf(`Out"box %d`, schemas.Add(1)))
	schemaIn.Store(t, schema)
	if _, err := pgstore.Migrate(t.Context(), pool, pgstore.Options{Schema: schema, Shards: shards}); err != nil {
		t.Fatal(err)
	}
	store := func() relay.Store {
		s, err := poll.New(poll.Config{Pool: pool, Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return conformance.Harness[Tx]{
		Store:             store(),
		Second:            func(testing.TB) relay.Store { return store() },
		ConcurrentWriters: true,
		Admin:             pgstore.NewAdmin(pool, schema),
		SetPaused: func(ctx context.Context, route string, paused bool) error {
			_, err := pool.Exec(ctx, `INSERT INTO `+schema.Table("route")+` (name, paused_at) VALUES ($1, CASE WHEN $2 THEN now() END)
				ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at`, route, paused)
			return err
		},
		Now: func(ctx context.Context) (now time.Time, err error) {
			err = pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
			return now, err
		},
	}
}
