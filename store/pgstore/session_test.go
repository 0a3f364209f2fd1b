package pgstore_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgstore"
)

// setDatabase sets a setting for sessions that begin from now on, and returns a
// pool of such.
func setDatabase(t *testing.T, pool *pgxpool.Pool, settings ...string) *pgxpool.Pool {
	t.Helper()
	for _, set := range settings {
		exec(t, pool, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET `+strings.ReplaceAll(set, "'", "''")+`', current_database()); END $$`)
	}
	fresh, err := pgxpool.NewWithConfig(t.Context(), pool.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fresh.Close)
	return fresh
}

// Types and operators of the names of PostgreSQL's own come first in an
// application's search_path: it enqueues all the same, in every way, to the same
// shard, and takes the same locks.
func TestEnqueueWithTypesAndOperatorsOfOthers(t *testing.T) {
	pool := migrated(t, pgstore.Options{Shards: 5})
	for _, statement := range []string{
		`CREATE SCHEMA evil`,
		`CREATE DOMAIN evil.text AS pg_catalog.text CHECK (false)`, `CREATE DOMAIN evil.bytea AS pg_catalog.bytea CHECK (false)`,
		`CREATE DOMAIN evil.json AS pg_catalog.json CHECK (false)`, `CREATE DOMAIN evil.uuid AS pg_catalog.uuid CHECK (false)`,
		`CREATE DOMAIN evil.timestamptz AS pg_catalog.timestamptz CHECK (false)`, `CREATE DOMAIN evil.int4 AS pg_catalog.int4 CHECK (false)`,
		`CREATE FUNCTION evil.json_array_elements_text(pg_catalog.json) RETURNS SETOF pg_catalog.text LANGUAGE sql AS $$ SELECT 'evil'::pg_catalog.text $$`,
		`CREATE FUNCTION evil.unnest(pg_catalog.text[]) RETURNS SETOF pg_catalog.text LANGUAGE sql AS $$ SELECT 'evil'::pg_catalog.text $$`,
	} {
		exec(t, pool, statement)
	}
	for i, o := range [][3]string{
		{"=", "int4", "bool"}, {"=", "text", "bool"}, {"~", "text", "bool"}, {"||", "text", "text"}, {"*", "float8", "float8"},
		{"+", "int4", "int4"}, {"%", "int4", "int4"}, {"&", "int4", "int4"}, {"|", "int4", "int4"}, {"<<", "int4", "int4"},
	} {
		exec(t, pool, fmt.Sprintf(`CREATE FUNCTION evil.o%d(pg_catalog.%s, pg_catalog.%[2]s) RETURNS pg_catalog.%s LANGUAGE plpgsql AS $$ BEGIN RAISE USING MESSAGE = 'the operator %[4]s of others was called'; END $$`,
			i, o[1], o[2], o[0]))
		exec(t, pool, fmt.Sprintf(`CREATE OPERATOR evil.%s (FUNCTION = evil.o%d, LEFTARG = pg_catalog.%s, RIGHTARG = pg_catalog.%[3]s)`, o[0], i, o[1]))
	}
	const key = "Müller's"
	shard := 0
	if err := pool.QueryRow(t.Context(), `SELECT postrider.shard_of($1)`, key).Scan(&shard); err != nil {
		t.Fatal(err)
	}
	config := pool.Config()
	config.ConnConfig.RuntimeParams["search_path"] = "evil, pg_catalog"
	app, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	err = pgx.BeginFunc(t.Context(), app, func(tx pgx.Tx) error {
		w := outbox.NewWriter(pgstore.Pgx{})
		for _, keys := range [][]string{{key}, {key, ""}} {
			if err := w.LockKeys(t.Context(), tx, keys...); err != nil {
				return err
			}
		}
		m := outbox.Message{Topic: "t", Key: key, Payload: []byte("p"), Headers: map[string]string{"h": "v"}}
		if err := w.Enqueue(t.Context(), tx, m, outbox.Message{Topic: "t"}); err != nil {
			return err
		}
		if _, err := tx.Exec(t.Context(), `SELECT postrider.enqueue('t', 'p', $1::pg_catalog.text), postrider.enqueue('t', 'p')`, key); err != nil {
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := locksOf(t, pool, app, "", `jit = off`), locksOf(t, pool, pool, "", `jit = off`); got != want {
		t.Errorf("the locks are %s, and with a sound path %s", got, want)
	}
	db := stdlib.OpenDBFromPool(app)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	w := outbox.NewWriter(pgstore.SQL{})
	if err := w.LockKeys(t.Context(), tx, key); err != nil {
		t.Fatal(err)
	}
	if err := w.Enqueue(t.Context(), tx, outbox.Message{Topic: "t", Key: key, Payload: []byte("p"), Headers: map[string]string{"h": "v"}}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*) FROM postrider.log_%d WHERE key = $1`, shard), key).Scan(&n); err != nil || n != 3 {
		t.Errorf("%d messages of the key are in its shard, %v, want 3", n, err)
	}
}

// Two sessions lock the same keys, though they read literals in different ways and
// the schema's name has what one of them takes for an escape.
func TestLocksDoNotDependOnTheSession(t *testing.T) {
	const schema = pgstore.Schema(`a\n'b`)
	pool := migrated(t, pgstore.Options{Schema: schema, Shards: 1})
	on, off := locksOf(t, pool, pool, schema, `standard_conforming_strings = on`), locksOf(t, pool, pool, schema, `standard_conforming_strings = off`)
	pool.Reset() // a session may have compiled the function before
	if other := locksOf(t, pool, pool, schema, `standard_conforming_strings = off`); on != off || on != other {
		t.Errorf("the locks are %s, %s and %s", on, off, other)
	}
}

// locksOf are the locks that the keys have when app takes them, with a setting.
func locksOf(t *testing.T, pool, app *pgxpool.Pool, schema pgstore.Schema, setting string) (locks string) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), app, func(tx pgx.Tx) error {
		var pid int
		if _, err := tx.Exec(t.Context(), `SET LOCAL `+setting); err != nil {
			return err
		}
		if err := tx.QueryRow(t.Context(), `SELECT pg_catalog.pg_backend_pid()`).Scan(&pid); err != nil {
			return err
		}
		if err := outbox.NewWriter(pgstore.Pgx{Schema: schema}).LockKeys(t.Context(), tx, "k", "Müller's"); err != nil {
			return err
		}
		return pool.QueryRow(t.Context(), `SELECT string_agg(classid || ' ' || objid, ', ' ORDER BY classid, objid) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1`, pid).Scan(&locks)
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(locks, ",") != 1 {
		t.Errorf("the locks of two keys are %s", locks)
	}
	return locks
}

// Migrations mean PostgreSQL's own names, whatever the role's settings are, and
// see what others did while they waited for them.
func TestMigrateInOddSessions(t *testing.T) {
	pool := open(t)
	exec(t, pool, `CREATE SCHEMA evil`)
	exec(t, pool, `CREATE FUNCTION evil.octet_length(pg_catalog.text) RETURNS integer LANGUAGE sql AS 'SELECT 0'`)
	exec(t, pool, `CREATE FUNCTION evil.nextval(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint'`)
	exec(t, pool, `CREATE DOMAIN evil.uuid AS pg_catalog.text`)
	odd := setDatabase(t, pool, `search_path = evil, pg_catalog`, `standard_conforming_strings = off`, `default_transaction_isolation = serializable`, `DateStyle = German`)
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() {
			_, err := pgstore.Migrate(t.Context(), odd, pgstore.Options{Schema: `a\n'b`, Shards: 2})
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	sound := migrated(t, pgstore.Options{Schema: `a\n'b`, Shards: 2})
	const shape = `SELECT string_agg(format('%s.%s %s.%s %s', table_name, column_name, udt_schema, udt_name, column_default), E'\n' ORDER BY table_name, ordinal_position)
		FROM information_schema.columns WHERE table_schema = $1`
	var got, want string
	if err := pool.QueryRow(t.Context(), shape, `a\n'b`).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if err := sound.QueryRow(t.Context(), shape, `a\n'b`).Scan(&want); err != nil || got != want {
		t.Errorf("the tables are others (%v):\n%s\nwant\n%s", err, got, want)
	}
}

// A session in which statements or texts could become others is refused, with what
// to do, before anything is read or written.
func TestSessionsThatAreRefused(t *testing.T) {
	pool := migrated(t, pgstore.Options{})
	exec(t, pool, `CREATE SCHEMA other`)
	for setting, want := range map[string]string{
		"search_path = other, pg_catalog": `search_path has schema "other" before pg_catalog`,
		"client_encoding = LATIN1":        "client_encoding of this session is LATIN1",
		"search_path = pg_catalog, other": "",
		"search_path = other":             "",
		"search_path = ''":                "",
	} {
		odd := setDatabase(t, pool, "search_path = DEFAULT", "client_encoding = DEFAULT", setting)
		_, err := pgstore.ReadStatus(t.Context(), odd, "")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", setting, err, want)
		}
		err = pgx.BeginFunc(t.Context(), odd, func(tx pgx.Tx) error {
			return outbox.NewWriter(pgstore.Pgx{}).Enqueue(t.Context(), tx, outbox.Message{Topic: "t", Key: "Müller"})
		})
		if refused := strings.HasPrefix(setting, "client_encoding"); refused != (err != nil) || refused && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the Writer says %v", setting, err)
		}
	}
}

// A database that cannot hold every text gets no outbox.
func TestDatabasesInOtherEncodings(t *testing.T) {
	at := pgtest.Database(t)
	server, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close(context.WithoutCancel(t.Context()))
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(u.Path, "/") + "_" + strings.ToLower(encoding)
		if _, err := server.Exec(t.Context(), `CREATE DATABASE `+name+` ENCODING '`+encoding+`' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`); err != nil {
			t.Fatal(err)
		}
		defer server.Exec(context.WithoutCancel(t.Context()), `DROP DATABASE `+name+` WITH (FORCE)`)
		u.Path = "/" + name
		for _, client := range []string{"", "&client_encoding=UTF8"} {
			pool, err := pgxpool.New(t.Context(), u.String()+client)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			if _, err := pgstore.Migrate(t.Context(), pool, pgstore.Options{}); err == nil || !strings.Contains(err.Error(), "has the encoding "+encoding+", and the outbox needs UTF8") {
				t.Errorf("%s%s: %v", encoding, client, err)
			}
		}
	}
}

// Rows that a policy hides would count as rolled back, so the relay does not read.
func TestRowsThatAPolicyHides(t *testing.T) {
	pool := migrated(t, pgstore.Options{Shards: 1})
	var role string
	if err := pool.QueryRow(t.Context(), `SELECT current_database() || '_role'`).Scan(&role); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `CREATE ROLE `+role)
	t.Cleanup(func() {
		for _, statement := range []string{`DROP OWNED BY ` + role, `DROP ROLE ` + role} {
			if _, err := pool.Exec(context.WithoutCancel(t.Context()), statement); err != nil {
				t.Error(err)
			}
		}
	})
	exec(t, pool, `GRANT ALL ON SCHEMA postrider TO `+role)
	exec(t, pool, `GRANT ALL ON ALL TABLES IN SCHEMA postrider TO `+role)
	exec(t, pool, `GRANT ALL ON ALL SEQUENCES IN SCHEMA postrider TO `+role)
	config := pool.Config()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET ROLE `+role)
		return err
	}
	relay, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	check := func() error { return pgstore.CheckServer(t.Context(), relay, "") }
	if err := check(); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"log_0", "parked"} {
		exec(t, pool, `ALTER TABLE postrider.`+table+` ENABLE ROW LEVEL SECURITY`)
		if err := check(); err == nil || !strings.Contains(err.Error(), `row level security hides rows of table "postrider"."`+table+`"`) {
			t.Errorf("%s: %v", table, err)
		}
		if err := pgstore.CheckServer(t.Context(), pool, ""); err != nil {
			t.Errorf("from a role that sees all: %v", err)
		}
		exec(t, pool, `ALTER TABLE postrider.`+table+` DISABLE ROW LEVEL SECURITY`)
	}
}
