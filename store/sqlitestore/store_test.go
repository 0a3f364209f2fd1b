package sqlitestore_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
