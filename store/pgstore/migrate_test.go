package pgstore_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store/pgstore"
)

func TestMigrateIsIdempotentAndFixesShards(t *testing.T) {
	pool := open(t)
	status, err := pgstore.ReadStatus(t.Context(), pool, "")
	if err != nil || status.Version != 0 || len(status.Pending) == 0 {
		t.Fatalf("before: %+v, %v", status, err)
	}
	applied, err := pgstore.Migrate(t.Context(), pool, pgstore.Options{Shards: 3})
	if err != nil || !cmp.Equal(applied, status.Pending) {
		t.Fatalf("applied %v, %v, want %v", applied, err, status.Pending)
	}
	for _, shards := range []int{0, 3} {
		if applied, err = pgstore.Migrate(t.Context(), pool, pgstore.Options{Shards: shards}); err != nil || len(applied) > 0 {
			t.Fatalf("again with %d shards: %v, %v", shards, applied, err)
		}
	}
	if _, err = pgstore.Migrate(t.Context(), pool, pgstore.Options{Shards: 4}); err == nil || !strings.Contains(err.Error(), "has 3") {
		t.Fatalf("with other shards: %v", err)
	}
	if status, err = pgstore.ReadStatus(t.Context(), pool, ""); err != nil || status.Shards != 3 || len(status.Pending) > 0 {
		t.Fatalf("after: %+v, %v", status, err)
	}
}

func TestMigrateByManyAtOnce(t *testing.T) {
	pool := open(t)
	var group sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		group.Go(func() { _, errs[i] = pgstore.Migrate(t.Context(), pool, pgstore.Options{Schema: "Many"}) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestMigrateRefuses(t *testing.T) {
	pool := migrated(t, pgstore.Options{})
	exec(t, pool, `UPDATE postrider.meta SET value = '99' WHERE name IN ('version', 'compatible_from')`)
	if _, err := pgstore.Migrate(t.Context(), pool, pgstore.Options{}); !errors.Is(err, pgstore.ErrNewerSchema) {
		t.Errorf("a later version's schema: %v", err)
	}
	for _, opts := range []pgstore.Options{
		{Shards: -1}, {Timeout: -1}, {Shards: pgstore.MaxShards + 1}, {Schema: "pg_outbox"}, {Schema: pgstore.Schema(strings.Repeat("x", 64))}, {Schema: "a\x00"}, {Schema: "\xff"},
	} {
		if _, err := pgstore.Migrate(t.Context(), pool, opts); err == nil {
			t.Errorf("%+v was accepted", opts)
		}
	}
}

// What `migrate print` prints makes the same tables as Migrate.
func TestScriptEqualsMigrate(t *testing.T) {
	opts := pgstore.Options{Schema: `It's "quoted"`, Shards: 2}
	script, err := pgstore.Script(opts)
	if err != nil {
		t.Fatal(err)
	}
	scripted, whole := open(t), migrated(t, opts)
	exec(t, scripted, script, pgx.QueryExecModeSimpleProtocol)
	const columns = `SELECT string_agg(format('%s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default), E'\n' ORDER BY table_name, ordinal_position)
		|| (SELECT string_agg(name || ' ' || value, ' ' ORDER BY name) FROM "It's ""quoted""".meta)
		FROM information_schema.columns WHERE table_schema = $1`
	var a, b string
	for _, q := range []struct {
		db   pgstore.DB
		into *string
	}{{scripted, &a}, {whole, &b}} {
		if err := q.db.QueryRow(t.Context(), columns, string(opts.Schema)).Scan(q.into); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(b, a); diff != "" {
		t.Errorf("the script differs (-migrate +script):\n%s", diff)
	}
	status, err := pgstore.ReadStatus(t.Context(), scripted, opts.Schema)
	if err != nil || len(status.Pending) > 0 || status.Shards != 2 {
		t.Errorf("status after the script: %+v, %v", status, err)
	}
}
