package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/store/sqlitestore"
)

// database opens a file without Postrider's tables.
func database(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", sqlitestore.DSN(filepath.Join(t.TempDir(), "app.db")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// schema is what sqlite_schema says, without its comments' place.
func schema(t *testing.T, db *sql.DB) []string {
	t.Helper()
	rows, err := db.Query("SELECT name || ': ' || coalesce(sql, '') FROM sqlite_schema ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestMigrateTwiceChangesNothing(t *testing.T) {
	db, ctx := database(t), t.Context()
	for range 2 {
		if err := sqlitestore.Migrate(ctx, db, sqlitestore.Options{Shards: 3}); err != nil {
			t.Fatal(err)
		}
	}
	if err := sqlitestore.Migrate(ctx, db, sqlitestore.Options{}); err != nil {
		t.Fatal(err)
	}
	v, err := sqlitestore.Status(ctx, db)
	if err != nil || v.Have != v.Known || v.Known == 0 || v.Shards != 3 || len(v.Pending) > 0 {
		t.Fatalf("status %+v, %v", v, err)
	}
}

func TestStatusOfAnEmptyDatabase(t *testing.T) {
	db := database(t)
	v, err := sqlitestore.Status(t.Context(), db)
	if err != nil || v.Have != 0 || v.Shards != 0 || len(v.Pending) != v.Known || v.Known == 0 {
		t.Fatalf("status %+v, %v", v, err)
	}
	if got := schema(t, db); len(got) > 0 {
		t.Fatalf("asking made %v", got)
	}
}

func TestMigrateByMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			s, err := sqlitestore.Open(context.Background(), path, sqlitestore.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			if n, err := s.Shards(t.Context()); n != sqlitestore.DefaultShards || err != nil {
				t.Errorf("%d shards, %v", n, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
}

func TestMigrateRefuses(t *testing.T) {
	db, ctx := database(t), t.Context()
	for _, n := range []int{-1, 1025} {
		if err := sqlitestore.Migrate(ctx, db, sqlitestore.Options{Shards: n}); err == nil {
			t.Errorf("%d shards were taken", n)
		}
	}
	if err := sqlitestore.Migrate(ctx, db, sqlitestore.Options{Shards: 2}); err != nil {
		t.Fatal(err)
	}
	before := schema(t, db)
	if err := sqlitestore.Migrate(ctx, db, sqlitestore.Options{Shards: 3}); err == nil || !strings.Contains(err.Error(), "2 shards") {
		t.Errorf("another number of shards: %v", err)
	}
	if _, err := db.Exec("UPDATE postrider_meta SET value = 1000 WHERE name IN ('version', 'compatible_from')"); err != nil {
		t.Fatal(err)
	}
	if err := sqlitestore.Migrate(ctx, db, sqlitestore.Options{}); !errors.Is(err, sqlitestore.ErrNewer) || !strings.Contains(err.Error(), "1000") {
		t.Errorf("newer tables: %v", err)
	}
	if v, err := sqlitestore.Status(ctx, db); err != nil || v.Have != 1000 {
		t.Errorf("status of newer tables: %+v, %v", v, err)
	}
	if diff := cmp.Diff(before, schema(t, db)); diff != "" {
		t.Errorf("a refusal changed the tables:\n%s", diff)
	}
}

func TestScriptMakesWhatMigrateMakes(t *testing.T) {
	script, err := sqlitestore.Script(3)
	if err != nil {
		t.Fatal(err)
	}
	byScript, byMigrate := database(t), database(t)
	if _, err := byScript.Exec(script); err != nil {
		t.Fatalf("%v in:\n%s", err, script)
	}
	if err := sqlitestore.Migrate(t.Context(), byMigrate, sqlitestore.Options{Shards: 3}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(schema(t, byMigrate), schema(t, byScript)); diff != "" {
		t.Fatalf("migrated (-) and by script (+):\n%s", diff)
	}
	v, err := sqlitestore.Status(t.Context(), byScript)
	if err != nil || v.Have != v.Known || v.Shards != 3 {
		t.Fatalf("status after the script: %+v, %v", v, err)
	}
	if _, err := sqlitestore.Script(-1); err == nil {
		t.Fatal("a script for -1 shards")
	}
}

func TestOpen(t *testing.T) {
	ctx := context.Background()
	for _, path := range []string{"", ":memory:", filepath.Join(t.TempDir(), "no", "such", "folder.db"), t.TempDir()} {
		if s, err := sqlitestore.Open(ctx, path, sqlitestore.Options{}); err == nil {
			t.Errorf("%q was opened: %v", path, s.Close())
		}
	}
	odd := filepath.Join(t.TempDir(), "a ?&#%41=ü.db")
	open(t, odd, sqlitestore.Options{Shards: 2})
	if n, err := open(t, odd, sqlitestore.Options{}).Shards(ctx); n != 2 || err != nil {
		t.Errorf("the second Open found %d shards, %v: it opened another file", n, err)
	}
}

func TestPoolHasWhatItNeeds(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{}).DB()
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "10000"} {
		var got string
		if err := db.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", pragma, got, err, want)
		}
	}
}

// Another language's library inserts with its own SQLite, and computes the
// defaults with it: they must not need a newer one than STRICT and JSON do, and
// be the time that the store itself goes by.
func TestDefaultTimes(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1}).DB()
	for _, sql := range schema(t, db) {
		for line := range strings.Lines(sql) {
			if strings.Contains(line, "subsec") {
				t.Errorf("SQLite before 3.42 makes NULL of %s", line)
			}
		}
	}
	for range 100 {
		if _, err := db.Exec(`INSERT INTO postrider_log_0 (id, topic, key, type, payload, content_type, headers)
			SELECT randomblob(16), 'orders', '', CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000, x'', '', '{}'`); err != nil {
			t.Fatal(err)
		}
	}
	var wrong int
	if err := db.QueryRow(`SELECT count(*) FROM postrider_log_0 WHERE created_at <> CAST(type AS INTEGER)`).Scan(&wrong); err != nil || wrong > 0 {
		t.Errorf("%d of 100 times differ from the store's, %v", wrong, err)
	}
}
