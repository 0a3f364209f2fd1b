package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlitestore"
)

// wantFailed checks that one message is failed, with that reason.
func wantFailed(t *testing.T, db *sql.DB, seq int64, reason string) {
	t.Helper()
	var gotSeq int64
	var got string
	err := db.QueryRow("SELECT seq, error FROM postrider_parked WHERE state = 'failed'").Scan(&gotSeq, &got)
	if err != nil || gotSeq != seq || !strings.Contains(got, reason) {
		t.Errorf("failed is number %d with %q, %v; want number %d with %q", gotSeq, got, err, seq, reason)
	}
}

// A row that somebody wrote past the checks fails, and the others go on.
func TestUnreadableRowFails(t *testing.T) {
	for name, c := range map[string]struct{ damage, says string }{
		"an id":               {"id = x'00'", "id is no UUID"},
		"no id":               {"id = x''", "id is no UUID"},
		"headers not JSON":    {"headers = '{'", "headers are no JSON object"},
		"headers no object":   {"headers = '[1]'", "headers are no JSON object"},
		"headers null":        {"headers = 'null'", "headers are no JSON object"},
		"a topic not UTF-8":   {"topic = CAST(x'ff' AS TEXT)", "topic is not valid UTF-8"},
		"no topic":            {"topic = ''", "topic is empty"},
		"and it is for later": {"id = x'00', not_before = 9223372036854775807", "id is no UUID"},
		"and it has expired":  {"id = x'00', expires = -9223372036854775808", "id is no UUID"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "outbox.db")
			s := open(t, path, sqlitestore.Options{Shards: 1})
			enqueue(t, s.DB(), "a", "bad", "c")
			exec1(t, unchecked(t, path), "UPDATE postrider_log_0 SET "+c.damage+" WHERE seq = 2")
			lease := acquire(t, s)
			got := receive(t, lease, "a", "bad", "c")
			wantUnreadable(t, got[1], c.says)
			if err := lease.Settle(t.Context(), []relay.Outcome{outcomeOf(got[1])}); err != nil {
				t.Fatal(err)
			}
			wantFailed(t, s.DB(), 2, c.says)
			// It is not read again, by the next owner either.
			lease = acquire(t, s)
			got = receive(t, lease, "a", "c")
			if err := lease.Settle(t.Context(), []relay.Outcome{{Delivery: got[0], State: outbox.StateSent}, {Delivery: got[1], State: outbox.StateSent}}); err != nil {
				t.Fatal(err)
			}
			// When an operator has it tried again it fails again.
			exec1(t, s.DB(), "UPDATE postrider_parked SET state = 'retrying', due = 0")
			got = receive(t, lease, "bad")
			wantUnreadable(t, got[0], c.says)
			if err := lease.Settle(t.Context(), []relay.Outcome{outcomeOf(got[0])}); err != nil {
				t.Fatal(err)
			}
			wantFailed(t, s.DB(), 2, c.says)
		})
	}
}

// wantUnreadable checks that the delivery is one that only is to be settled as
// failed, for that reason.
func wantUnreadable(t *testing.T, d relay.Delivery, reason string) {
	t.Helper()
	if d.State != outbox.StateFailed || d.Released || !strings.Contains(d.Error, reason) {
		t.Fatalf("it came as state %q, released %v, with %q; want failed with %q", d.State, d.Released, d.Error, reason)
	}
}

// outcomeOf settles a delivery as it came.
func outcomeOf(d relay.Delivery) relay.Outcome {
	return relay.Outcome{Delivery: d, State: d.State, Attempts: d.Attempts, Error: d.Error}
}

// Times that nobody means are no trouble.
func TestAbsurdTimes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	s := open(t, path, sqlitestore.Options{Shards: 1})
	enqueue(t, s.DB(), "a", "b")
	exec1(t, unchecked(t, path), "UPDATE postrider_log_0 SET not_before = 9223372036854775807, created_at = 9223372036854775807 WHERE seq = 1")
	exec1(t, unchecked(t, path), "UPDATE postrider_log_0 SET not_before = -9223372036854775808, created_at = -9223372036854775808 WHERE seq = 2")
	lease := acquire(t, s)
	got := receive(t, lease, "a", "b")
	if got[0].State != outbox.StateScheduled || got[1].State != outbox.StatePending {
		t.Errorf("states %s, %s", got[0].State, got[1].State)
	}
	if err := lease.Settle(t.Context(), []relay.Outcome{{Delivery: got[0], State: outbox.StateScheduled}, {Delivery: got[1], State: outbox.StateSent}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, err := lease.Receive(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("received %v, %v", types(got), err)
	}
}

// Where a failed message holds its key, it does so too.
func TestUnreadableRowHoldsItsKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	s := open(t, path, sqlitestore.Options{Shards: 1})
	enqueue(t, s.DB(), "a", "bad", "c")
	exec1(t, unchecked(t, path), "UPDATE postrider_log_0 SET id = x'00' WHERE seq = 2")
	hold := claim
	hold.Hold = true
	lease, err := s.Acquire(t.Context(), hold)
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Settle(t.Context(), []relay.Outcome{outcomeOf(receive(t, lease, "a", "bad", "c")[1])}); err != nil {
		t.Fatal(err)
	}
	wantFailed(t, s.DB(), 2, "id is no UUID")
	if lease, err = s.Acquire(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"k": 1}, lease.ClosedKeys()); diff != "" {
		t.Errorf("closed keys (-want +got):\n%s", diff)
	}
	receive(t, lease, "a", "c")
}

// A blocked message that is gone from the log fails, and those behind it go on.
func TestBlockedMessageGoneFromTheLog(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1})
	enqueue(t, s.DB(), "a", "gone", "c")
	lease := acquire(t, s)
	got := receive(t, lease, "a", "gone", "c")
	if err := lease.Settle(t.Context(), []relay.Outcome{
		{Delivery: got[0], State: outbox.StateRetrying}, {Delivery: got[1], State: outbox.StateBlocked}, {Delivery: got[2], State: outbox.StateBlocked},
	}); err != nil {
		t.Fatal(err)
	}
	if err := lease.Settle(t.Context(), []relay.Outcome{{Delivery: receive(t, lease, "a")[0], State: outbox.StateSent}}); err != nil {
		t.Fatal(err)
	}
	exec1(t, s.DB(), "DELETE FROM postrider_log_0 WHERE seq = 2")
	got = receive(t, lease, "", "c")
	wantUnreadable(t, got[0], "gone from the log")
	if got[0].Place != relay.PlaceKept || got[0].Message.Key != "k" {
		t.Errorf("it came with key %q at place %d", got[0].Message.Key, got[0].Place)
	}
	if err := lease.Settle(t.Context(), []relay.Outcome{outcomeOf(got[0])}); err != nil {
		t.Fatal(err)
	}
	wantFailed(t, s.DB(), 2, "gone from the log")
	lease = acquire(t, s)
	if diff := cmp.Diff(map[string]int{"k": 1}, lease.ClosedKeys()); diff != "" {
		t.Errorf("closed keys (-want +got):\n%s", diff)
	}
	receive(t, lease, "c")
}

// What was in hand when somebody deleted it from the log is kept as failed.
func TestMessageInHandGoneFromTheLog(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1})
	enqueue(t, s.DB(), "gone", "b")
	lease := acquire(t, s)
	got := receive(t, lease, "gone", "b")
	exec1(t, s.DB(), "DELETE FROM postrider_log_0 WHERE seq = 1")
	if err := lease.Settle(t.Context(), []relay.Outcome{{Delivery: got[0], State: outbox.StateRetrying, Attempts: 1}, {Delivery: got[1], State: outbox.StateBlocked}}); err != nil {
		t.Fatal(err)
	}
	wantFailed(t, s.DB(), 1, "gone from the log")
	got = receive(t, lease, "gone", "b")
	if !got[0].Released || got[0].Place != relay.PlaceKept {
		t.Errorf("the lease hears of it as state %q, released %v, place %d", got[0].State, got[0].Released, got[0].Place)
	}
}
