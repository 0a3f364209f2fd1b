package sqlitestore_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/conformance"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlitestore"
)

func TestStore(t *testing.T) { conformance.Store(t, harness) }

func TestSharing(t *testing.T) { conformance.Sharing(t, harness) }

func TestRetention(t *testing.T) { conformance.Retention(t, harness) }

func TestAdmin(t *testing.T) { conformance.Admin(t, harness) }

func TestInbox(t *testing.T) { conformance.Inbox(t, inboxHarness) }

// open opens a store for the length of a test.
func open(t testing.TB, path string, o sqlitestore.Options) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func harness(t testing.TB, shards int) conformance.Harness[*sql.Tx] {
	path := filepath.Join(t.TempDir(), "outbox.db")
	s := open(t, path, sqlitestore.Options{Shards: shards})
	return conformance.Harness[*sql.Tx]{
		Store:    s,
		Second:   func(t testing.TB) relay.Store { return open(t, path, sqlitestore.Options{}) },
		Inserter: sqlitestore.SQL{},
		Begin:    func(ctx context.Context) (*sql.Tx, error) { return s.DB().BeginTx(ctx, nil) },
		Commit:   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		Rollback: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		Savepoint: func(ctx context.Context, tx *sql.Tx, name string) error {
			_, err := tx.ExecContext(ctx, "SAVEPOINT "+name)
			return err
		},
		RollbackTo: func(ctx context.Context, tx *sql.Tx, name string) error {
			_, err := tx.ExecContext(ctx, "ROLLBACK TO "+name)
			return err
		},
		Admin: sqlitestore.NewAdmin(s.DB()),
		SetPaused: func(ctx context.Context, route string, paused bool) error {
			_, err := s.DB().ExecContext(ctx, `INSERT INTO postrider_route (name, paused_at) VALUES (?1, iif(?2, 1, NULL))
				ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at`, route, paused)
			return err
		},
		Now: func(ctx context.Context) (time.Time, error) {
			var ms int64
			err := s.DB().QueryRowContext(ctx, "SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER)").Scan(&ms)
			return time.UnixMilli(ms), err
		},
	}
}

func inboxHarness(t testing.TB) conformance.InboxHarness[*sql.Tx] {
	db := open(t, filepath.Join(t.TempDir(), "inbox.db"), sqlitestore.Options{}).DB()
	if _, err := db.Exec("CREATE TABLE effects (consumer TEXT, id BLOB)"); err != nil {
		t.Fatal(err)
	}
	return conformance.InboxHarness[*sql.Tx]{
		Store: sqlitestore.Inbox{DB: db},
		Effect: func(ctx context.Context, tx *sql.Tx, consumer string, id uuid.UUID) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?, ?)", consumer, id[:])
			return err
		},
		Effects: func(ctx context.Context, consumer string, id uuid.UUID) (n int, err error) {
			err = db.QueryRowContext(ctx, "SELECT count(*) FROM effects WHERE consumer = ? AND id = ?", consumer, id[:]).Scan(&n)
			return n, err
		},
	}
}
