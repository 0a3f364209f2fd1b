package pgstore_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/conformance"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/store/pgstore"
)

func TestInbox(t *testing.T) {
	conformance.Inbox(t, func(t testing.TB) conformance.InboxHarness[pgx.Tx] {
		pool := migrated(t, pgstore.Options{})
		exec(t, pool, `CREATE TABLE effect (consumer text, id uuid)`)
		return conformance.InboxHarness[pgx.Tx]{
			Store: pgstore.Inbox{DB: pool},
			Effect: func(ctx context.Context, tx pgx.Tx, consumer string, id uuid.UUID) error {
				_, err := tx.Exec(ctx, `INSERT INTO effect VALUES ($1, $2)`, consumer, id)
				return err
			},
			Effects: func(ctx context.Context, consumer string, id uuid.UUID) (n int, err error) {
				err = pool.QueryRow(ctx, `SELECT count(*) FROM effect WHERE consumer = $1 AND id = $2`, consumer, id).Scan(&n)
				return n, err
			},
		}
	})
}

// open returns a pool on an empty database of the test's own.
func open(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), pgtest.Database(t)+"&pool_max_conns=20")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func migrated(t testing.TB, opts pgstore.Options) *pgxpool.Pool {
	t.Helper()
	pool := open(t)
	if _, err := pgstore.Migrate(t.Context(), pool, opts); err != nil {
		t.Fatal(err)
	}
	return pool
}

func exec(t testing.TB, db pgstore.DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
