package sqlitestore_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlitestore"
)

// startingNow is a lease of a route that starts now, with one message sent, one
// in hand and one not read.
func startingNow(t *testing.T) (*sqlitestore.Store, string, relay.Claim, relay.Lease) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.db")
	s := open(t, path, sqlitestore.Options{Shards: 1})
	enqueue(t, s.DB(), "before")
	now := claim
	now.Start = relay.StartNow
	lease, err := s.Acquire(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, s.DB(), "sent", "in hand")
	got := receive(t, lease, "sent", "in hand")
	if err := lease.Settle(t.Context(), []relay.Outcome{{Delivery: got[0], State: outbox.StateSent}}); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s.DB(), "not read")
	return s, path, now, lease
}

// Somebody deletes the cursor of a route that starts now: the next lease goes on
// where the last one stood, and the last one says so.
func TestTheNextLeaseGoesOnWhereADeletedCursorStood(t *testing.T) {
	for _, settles := range []bool{true, false} {
		s, _, now, lease := startingNow(t)
		exec1(t, s.DB(), `DELETE FROM postrider_cursor`)
		if settles {
			if err := lease.Settle(t.Context(), nil); !errors.Is(err, relay.ErrFenced) || !strings.Contains(err.Error(), "deleted its row") {
				t.Errorf("settle: %v", err)
			}
		}
		if err := lease.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		lease, err := s.Acquire(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		receive(t, lease, "in hand", "not read")
		var started int
		if err := s.DB().QueryRow(`SELECT started FROM postrider_cursor`).Scan(&started); err != nil || started != 1 {
			t.Errorf("the route began after %d, %v", started, err)
		}
	}
}

// Who removes a route wants it to begin anew.
func TestARemovedRouteBeginsAnew(t *testing.T) {
	s, _, now, lease := startingNow(t)
	if _, err := admin.New(sqlitestore.NewAdmin(s.DB())).RemoveRoute(t.Context(), now.Route, true, "anna", ""); err != nil {
		t.Fatal(err)
	}
	if err := lease.Settle(t.Context(), nil); !errors.Is(err, relay.ErrFenced) || strings.Contains(err.Error(), "deleted") {
		t.Errorf("settle: %v", err)
	}
	if err := lease.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	lease, err := s.Acquire(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, s.DB(), "new")
	receive(t, lease, "new")
}

// A lease of a cursor that is gone is not one of the cursor that came after it.
func TestALeaseOfADeletedCursorStaysFenced(t *testing.T) {
	s, path, now, lease := startingNow(t)
	exec1(t, s.DB(), `DELETE FROM postrider_cursor`)
	now.Owner = "two"
	if _, err := open(t, path, sqlitestore.Options{}).Acquire(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if err := lease.Settle(t.Context(), nil); !errors.Is(err, relay.ErrFenced) {
		t.Errorf("settle: %v", err)
	}
}
