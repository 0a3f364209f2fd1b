package pgstore_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgstore"
)

// The shard of a key is a promise to every language.
func TestShardOfKey(t *testing.T) {
	const shards = 7
	pool := migrated(t, pgstore.Options{Shards: shards})
	for _, key := range []string{"a", "order-1", "🐎", " ", strings.Repeat("k", outbox.MaxKey), "Straße"} {
		sum := sha256.Sum256([]byte(key))
		want := int(binary.BigEndian.Uint32(sum[:])&0x7fffffff) % shards
		var got int
		if err := pool.QueryRow(t.Context(), `SELECT postrider.shard_of($1)`, key).Scan(&got); err != nil || got != want {
			t.Errorf("shard of %q: %d, %v, want %d", key, got, err, want)
		}
	}
	seen := map[int]bool{}
	for range 200 {
		var got int
		if err := pool.QueryRow(t.Context(), `SELECT postrider.shard_of('')`).Scan(&got); err != nil {
			t.Fatal(err)
		}
		seen[got] = true
	}
	if len(seen) != shards {
		t.Errorf("200 messages without a key took only shards %v of %d", seen, shards)
	}
}

// The Writer works shards out itself, as the function does; and when the tables
// have been made anew with another number of them, it fails once rather than
// write to the wrong one.
func TestWriterFindsTheShards(t *testing.T) {
	pool := migrated(t, pgstore.Options{Shards: 5})
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	w := outbox.NewWriter(pgstore.Pgx{})
	enqueue := func() error {
		return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			var msgs []outbox.Message
			for i := range 100 {
				msgs = append(msgs, outbox.Message{Topic: "t", Key: "key-" + strconv.Itoa(i), Payload: []byte("x")})
			}
			return w.Enqueue(t.Context(), tx, msgs...)
		})
	}
	check := func(shards int) {
		t.Helper()
		total := 0
		for shard := range shards {
			var n, strays int
			err := conn.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*), count(*) FILTER (WHERE postrider.shard_of(key) <> %d) FROM postrider.log_%[1]d`, shard)).Scan(&n, &strays)
			if err != nil || strays > 0 {
				t.Errorf("shard %d of %d: %d strays, %v", shard, shards, strays, err)
			}
			total += n
		}
		if total != 100 {
			t.Errorf("%d messages in %d shards, want 100", total, shards)
		}
	}
	if err := enqueue(); err != nil {
		t.Fatal(err)
	}
	check(5)
	exec(t, pool, `DROP SCHEMA postrider CASCADE`)
	if _, err := pgstore.Migrate(t.Context(), pool, pgstore.Options{Shards: 7}); err != nil {
		t.Fatal(err)
	}
	if err := enqueue(); err == nil {
		t.Error("enqueued with the number of shards of before")
	}
	if err := enqueue(); err != nil {
		t.Fatal(err)
	}
	check(7)
}

// Neither search_path nor objects of the same names in the way change what
// enqueueing does.
func TestEnqueueUnderAHostileSearchPath(t *testing.T) {
	pool := migrated(t, pgstore.Options{Shards: 1})
	exec(t, pool, `CREATE SCHEMA evil`)
	exec(t, pool, `CREATE TABLE evil.log_0 (id uuid)`)
	exec(t, pool, `CREATE FUNCTION evil.shard_of(key text) RETURNS integer LANGUAGE sql AS 'SELECT 99'`)
	exec(t, pool, `CREATE FUNCTION evil.pg_current_xact_id() RETURNS xid8 LANGUAGE sql AS 'SELECT NULL::xid8'`)
	exec(t, pool, `CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$SELECT 'epoch'::timestamptz$$`)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL search_path = evil, pg_catalog`); err != nil {
			return err
		}
		w := outbox.NewWriter(pgstore.Pgx{})
		if err := w.LockKeys(t.Context(), tx, "k", "a", "k"); err != nil {
			return err
		}
		return w.Enqueue(t.Context(), tx, outbox.Message{Topic: "t", Key: "k", Payload: []byte("p")})
	})
	if err != nil {
		t.Fatal(err)
	}
	var ok bool
	err = pool.QueryRow(t.Context(), `SELECT count(*) = 1 AND bool_and(xid IS NOT NULL AND created_at > now() - interval '1 hour') FROM postrider.log_0`).Scan(&ok)
	if err != nil || !ok {
		t.Errorf("the log is not as it should be: %v", err)
	}
}

// What cannot be delivered is refused where it is written, whoever writes it.
func TestTheTableRefuses(t *testing.T) {
	pool := migrated(t, pgstore.Options{})
	for name, call := range map[string]string{
		"no topic":         `enqueue('', '')`,
		"null topic":       `enqueue(NULL, '')`,
		"long topic":       `enqueue(repeat('x', 256), '')`,
		"long key":         `enqueue('t', '', repeat('x', 1025))`,
		"null key":         `enqueue('t', '', NULL)`,
		"headers an array": `enqueue('t', '', headers => '[1]')`,
		"never due":        `enqueue('t', '', not_before => 'infinity')`,
		"large payload":    `enqueue('t', convert_to(repeat('x', 16777217), 'UTF8'))`,
	} {
		_, err := pool.Exec(t.Context(), `SELECT postrider.`+call)
		if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || refusal.ColumnName == "" && refusal.ConstraintName == "" {
			t.Errorf("%s: %v, want a refusal that names the column", name, err)
		}
	}
}

// A pool or *sql.DB is no transaction: enqueueing with one does not compile.
func TestEnqueueOutsideATransactionDoesNotCompile(t *testing.T) {
	dir, err := os.MkdirTemp(".", "_compile_") // ./... passes it over
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	build := func(tx string) (string, error) {
		source := `package main

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgstore"
)

var (
	pool  *pgxpool.Pool
	conn  *pgx.Conn
	pgxTx pgx.Tx
	db    *sql.DB
	sqlTx *sql.Tx
)

func main() { _ = ` + tx + ` }
`
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := osexec.CommandContext(t.Context(), "go", "vet", "./"+dir).CombinedOutput()
		return string(out), err
	}
	const enqueue = `outbox.NewWriter(pgstore.%).Enqueue(context.Background(), #, outbox.Message{})`
	call := func(inserter, tx string) string {
		return strings.NewReplacer("%", inserter, "#", tx).Replace(enqueue)
	}
	for _, good := range []string{call("Pgx{}", "pgxTx"), call("SQL{}", "sqlTx")} {
		if out, err := build(good); err != nil {
			t.Errorf("%s does not compile: %v\n%s", good, err, out)
		}
	}
	for _, bad := range []string{call("Pgx{}", "pool"), call("Pgx{}", "conn"), call("SQL{}", "db"), call("SQL{}", "pgxTx")} {
		if out, err := build(bad); err == nil || !strings.Contains(out, "cannot use") {
			t.Errorf("%s: %v, want a compile error\n%s", bad, err, out)
		}
	}
}
