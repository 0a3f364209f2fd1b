package sqlitestore_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlitestore"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(envOwner); path != "" {
		if err := ownUntilKilled(path); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// envOwner makes the test binary a process that owns a shard of that file.
const envOwner = "POSTRIDER_TEST_OWNER"

var claim = relay.Claim{Route: "route", Owner: "test", TTL: time.Minute, Topics: []string{"**"}}

// enqueue commits messages with these types, all of one key.
func enqueue(t *testing.T, db *sql.DB, types ...string) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var msgs []outbox.Message
	for _, kind := range types {
		msgs = append(msgs, outbox.Message{Topic: "orders", Key: "k", Type: kind})
	}
	if err := outbox.NewWriter(sqlitestore.SQL{}).Enqueue(t.Context(), tx, msgs...); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

func acquire(t *testing.T, s *sqlitestore.Store) relay.Lease {
	t.Helper()
	lease, err := s.Acquire(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func receive(t *testing.T, lease relay.Lease, want ...string) []relay.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got []relay.Delivery
	for len(got) < len(want) {
		ds, err := lease.Receive(ctx, len(want)-len(got))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ds...)
	}
	if !slices.Equal(types(got), want) {
		t.Fatalf("received %v, want %v", types(got), want)
	}
	return got
}

func types(ds []relay.Delivery) []string {
	var all []string
	for _, d := range ds {
		all = append(all, d.Message.Type)
	}
	return all
}

// ownUntilKilled is the other process: it takes the shard, receives five
// messages, settles the second and the fourth, says so, and stands still.
func ownUntilKilled(path string) error {
	ctx := context.Background()
	s, err := sqlitestore.Open(ctx, path, sqlitestore.Options{})
	if err != nil {
		return err
	}
	c := claim
	c.Owner, c.TTL = "killed", 500*time.Millisecond
	lease, err := s.Acquire(ctx, c)
	if err != nil {
		return err
	}
	var got []relay.Delivery
	for len(got) < 5 {
		ds, err := lease.Receive(ctx, 5-len(got))
		if err != nil {
			return err
		}
		got = append(got, ds...)
	}
	if err := lease.Settle(ctx, []relay.Outcome{
		{Delivery: got[1], State: outbox.StateSent}, {Delivery: got[3], State: outbox.StateSent},
	}); err != nil {
		return err
	}
	fmt.Println("settled")
	_, err = bufio.NewReader(os.Stdin).ReadString('\n') // for ever
	return err
}

func TestKilledProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	s := open(t, path, sqlitestore.Options{Shards: 1})
	enqueue(t, s.DB(), "1", "2", "3", "4", "5")

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	owner := exec.CommandContext(t.Context(), exe)
	owner.Env = append(os.Environ(), envOwner+"="+path)
	if _, err := owner.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "settled\n" {
		t.Fatalf("the other process said %q, %v", line, err)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // "signal: killed"

	var lease relay.Lease
	for end := time.Now().Add(20 * time.Second); lease == nil; {
		lease, err = s.Acquire(t.Context(), claim)
		if err != nil && (!errors.Is(err, relay.ErrHeld) || time.Now().After(end)) {
			t.Fatal(err)
		}
	}
	receive(t, lease, "1", "3", "5")
	if err := lease.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestNumbersAreNotReused(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1})
	lease := acquire(t, s)
	enqueue(t, s.DB(), "a")
	got := receive(t, lease, "a")
	if err := lease.Settle(t.Context(), []relay.Outcome{{Delivery: got[0], State: outbox.StateSent}}); err != nil {
		t.Fatal(err)
	}
	exec1(t, s.DB(), "DELETE FROM postrider_log_0")
	enqueue(t, s.DB(), "b")
	receive(t, lease, "b")
}

func exec1(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

// unchecked opens a file so that the tables' checks do not count, as for a
// program that ignores them or tables that were made without.
func unchecked(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", sqlitestore.DSN(path, "ignore_check_constraints(1)"))
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

func TestDamageIsReported(t *testing.T) {
	for name, c := range map[string]struct{ damage, says string }{
		"a log that was reset": {"DELETE FROM sqlite_sequence", "reset"},
		"unsettled numbers":    {"UPDATE postrider_cursor SET unsettled = 'x'", "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "outbox.db")
			s := open(t, path, sqlitestore.Options{Shards: 1})
			enqueue(t, s.DB(), "a", "b")
			lease := acquire(t, s)
			got := receive(t, lease, "a", "b")
			if err := lease.Settle(t.Context(), []relay.Outcome{{Delivery: got[0], State: outbox.StateSent}}); err != nil {
				t.Fatal(err)
			}
			exec1(t, unchecked(t, path), c.damage)
			lease, err := s.Acquire(t.Context(), claim)
			for err == nil {
				_, err = lease.Receive(t.Context(), 10)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error %q does not say %q", err, c.says)
			}
		})
	}
}

// Columns refuse what does not belong there, whoever writes it.
func TestGarbageIsRefused(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1})
	enqueue(t, s.DB(), "a")
	lease := acquire(t, s)
	got := receive(t, lease, "a")
	if err := lease.Settle(t.Context(), []relay.Outcome{{Delivery: got[0], State: outbox.StateFailed, Error: "no"}}); err != nil {
		t.Fatal(err)
	}
	for _, garbage := range []string{
		"UPDATE postrider_parked SET state = 'running'", "UPDATE postrider_parked SET due = 'soon'",
		"UPDATE postrider_parked SET attempts = NULL", "UPDATE postrider_cursor SET pos = 'far'",
		"UPDATE postrider_cursor SET expires = 'never'", "UPDATE postrider_cursor SET token = NULL",
		"UPDATE postrider_log_0 SET not_before = 'tomorrow'", "UPDATE postrider_log_0 SET payload = 'text'",
	} {
		if _, err := s.DB().Exec(garbage); err == nil {
			t.Errorf("taken: %s", garbage)
		}
	}
}

// The log refuses what could not be delivered, at its limits and not before.
func TestUndeliverableIsRefused(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1}).DB()
	insert := func(column, value string) error {
		row := map[string]string{
			"id": "randomblob(16)", "topic": "'orders'", "key": "'k'", "type": "'t'", "payload": "x'00'", "content_type": "'text/plain'", "headers": "'{}'",
		}
		row[column] = value
		names := slices.Sorted(maps.Keys(row))
		var values []string
		for _, name := range names {
			values = append(values, row[name])
		}
		_, err := db.Exec("INSERT INTO postrider_log_0 (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")")
		return err
	}
	text := func(n int) string { return "'" + strings.Repeat("ü", n/2) + strings.Repeat("x", n%2) + "'" }
	for _, good := range [][2]string{
		{"topic", text(255)}, {"key", text(1024)}, {"key", "''"}, {"type", text(255)}, {"content_type", text(255)}, {"payload", "zeroblob(16777216)"},
		{"headers", `'{"a":1}'`}, {"not_before", "NULL"}, {"not_before", "253402300799999999"}, {"created_at", "0"},
	} {
		if err := insert(good[0], good[1]); err != nil {
			t.Errorf("%s %.40s: %v", good[0], good[1], err)
		}
	}
	for _, bad := range [][2]string{
		{"id", "x'00'"}, {"id", "randomblob(17)"}, {"id", "x''"}, {"id", "NULL"}, {"id", "'0123456789abcdef'"},
		{"topic", "''"}, {"topic", text(256)}, {"topic", "'a' || char(0)"}, {"topic", "NULL"}, {"key", text(1025)}, {"key", "char(0)"}, {"key", "NULL"},
		{"type", text(256)}, {"type", "char(0)"}, {"content_type", text(256)}, {"content_type", "char(0)"},
		{"payload", "zeroblob(16777217)"}, {"payload", "NULL"}, {"payload", "'text'"},
		{"headers", "''"}, {"headers", "'{'"}, {"headers", "'[]'"}, {"headers", "'null'"}, {"headers", "NULL"},
		{"not_before", "9223372036854775807"}, {"not_before", "'tomorrow'"}, {"expires", "253402300800000000"}, {"expires", "1.5"},
		{"created_at", "-9223372036854775808"}, {"created_at", "NULL"},
	} {
		if insert(bad[0], bad[1]) == nil {
			t.Errorf("taken: %s %.40s", bad[0], bad[1])
		}
	}
}

// Whoever writes SQL may give headers any values.
func TestHeadersOfAnyKind(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1})
	exec1(t, s.DB(), `INSERT INTO postrider_log_0 (id, topic, key, type, payload, content_type, headers)
		VALUES (randomblob(16), 'orders', '', 'a', x'', '', '{"a":1,"b":null,"c":"d"}')`)
	got := receive(t, acquire(t, s), "a")[0].Message.Headers
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "null", "c": "d"}, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

// A promoted follower that is retried has a copy of its own from then on.
func TestRetriedFollowerIsCopied(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1})
	enqueue(t, s.DB(), "a", "b")
	lease := acquire(t, s)
	got := receive(t, lease, "a", "b")
	settle := func(outcomes ...relay.Outcome) {
		t.Helper()
		if err := lease.Settle(t.Context(), outcomes); err != nil {
			t.Fatal(err)
		}
	}
	settle(relay.Outcome{Delivery: got[0], State: outbox.StateRetrying}, relay.Outcome{Delivery: got[1], State: outbox.StateBlocked})
	settle(relay.Outcome{Delivery: receive(t, lease, "a")[0], State: outbox.StateSent})
	settle(relay.Outcome{Delivery: receive(t, lease, "b")[0], State: outbox.StateRetrying})
	exec1(t, s.DB(), "DELETE FROM postrider_log_0")
	receive(t, lease, "b")
}

// A settle waits for another writer as long as its context lets it, and the
// lease is as good as before.
func TestSettleWaitsForTheWriter(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1})
	enqueue(t, s.DB(), "a")
	lease := acquire(t, s)
	got := receive(t, lease, "a")
	outcomes := []relay.Outcome{{Delivery: got[0], State: outbox.StateSent}}

	tx, err := s.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := lease.Settle(ctx, outcomes); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Settle beside a writer: %v, want the context's end", err)
	}
	settled := make(chan error, 1)
	go func() { settled <- lease.Settle(t.Context(), outcomes) }()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
	if err := lease.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// LockKeys makes a transaction the writer that was begun as a reader.
func TestLockKeysOfADeferredTransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	s := open(t, path, sqlitestore.Options{Shards: 1})
	deferred, err := sql.Open("sqlite", "file:"+path+"?_busy_timeout=10")
	if err != nil {
		t.Fatal(err)
	}
	defer deferred.Close()
	tx, err := deferred.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.NewWriter(sqlitestore.SQL{}).LockKeys(t.Context(), tx, "k"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if other, err := s.DB().BeginTx(ctx, nil); err == nil {
		t.Fatal("another transaction could write", other.Rollback())
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

// Two stores in one process share nothing.
func TestTwoStoresInOneProcess(t *testing.T) {
	one := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1})
	two := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1})
	leaseOne, leaseTwo := acquire(t, one), acquire(t, two)
	enqueue(t, one.DB(), "one")
	enqueue(t, two.DB(), "two")
	receive(t, leaseOne, "one")
	receive(t, leaseTwo, "two")
}

// A database that was never migrated says what to do.
func TestNotMigrated(t *testing.T) {
	tx, err := database(t).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	err = outbox.NewWriter(sqlitestore.SQL{}).Enqueue(t.Context(), tx, outbox.Message{Topic: "orders"})
	if err == nil || !strings.Contains(err.Error(), "migrated") {
		t.Fatalf("enqueue without tables: %v", err)
	}
}
