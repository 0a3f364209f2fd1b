package admin_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
)

func TestFindings(t *testing.T) {
	now := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	shards := []admin.ShardStatus{{Owner: "relay-1"}, {Owner: "relay-2"}, {Owner: "relay-1"}, {}}
	other := []admin.ShardStatus{
		{Owner: "relay-1", Topics: []string{"a", "b"}}, {Owner: "relay-2", Topics: []string{"b"}}, {Owner: "relay-1", Topics: []string{"a", "b"}}, {Topics: []string{"c"}},
	}
	count := func(s outbox.State, n int64, more bool) []admin.StateCount {
		return []admin.StateCount{{State: s, Count: n, AtLeast: more}}
	}
	s := admin.Status{At: now, Routes: []admin.RouteStatus{
		{Name: "well", Shards: shards, OldestPending: now.Add(-time.Second)},
		{Name: "idle", Orphaned: true},
		{Name: "dead", Orphaned: true, Pending: 7, OldestPending: now.Add(-50 * time.Hour)},
		{Name: "waiting", Orphaned: true, Parked: append(append(count(outbox.StateRetrying, 1, false), count(outbox.StateBlocked, 2, true)...), count(outbox.StateScheduled, 4, false)...)},
		{Name: "slow", Pending: 9, Shards: shards, OldestPending: now.Add(-2 * time.Minute)},
		{Name: "paused", Orphaned: true, Paused: true, PausedAt: now, PausedBy: "anna", Pending: 3, OldestPending: now.Add(-time.Hour)},
		{Name: "mixed", Shards: other},
		{Name: "failing", Shards: shards, Parked: count(outbox.StateFailed, 1, false), LastError: "no such queue"},
		{Name: "holding", Shards: shards, Parked: append(count(outbox.StateFailed, 2, false), count(outbox.StateBlocked, 31, false)...), LastError: "too large"},
		{Name: "trying", Shards: shards, Parked: append(count(outbox.StateRetrying, 5, true), count(outbox.StateBlocked, 2, false)...)},
	}, Unrouted: []admin.Unrouted{{Topic: "lost", Messages: 2, Newest: now.Add(-time.Minute)}}}
	var got []string
	for _, f := range s.Findings(0) {
		mark := "note"
		if f.Bad {
			mark = "bad"
		}
		got = append(got, mark+" "+string(f.Kind)+" "+f.Route+": "+f.Text)
	}
	want := []string{
		"bad orphaned dead: no relay serves it; about 7 messages wait, the oldest for 2d2h",
		"bad orphaned waiting: no relay serves it; about 0 messages wait; 1 message retrying; more than 2 messages blocked; 4 messages scheduled",
		"bad stuck slow: about 9 messages wait, the oldest for 2m0s, although a relay serves it: relay-1, relay-2",
		"bad mixed mixed: its relays take different topics, and each passes over what the others take: relay-1 takes a,b, relay-2 takes b",
		"bad failed failing: 1 message failed; the latest error: no such queue",
		"bad failed holding: 2 messages failed, 31 messages blocked; the latest error: too large",
		"bad unrouted : no route takes topic lost: 2 messages lately, the newest 1m0s ago",
		"note orphaned idle: no relay serves it; nothing waits",
		"note retrying waiting: 1 message refused, with more than 2 messages behind; the latest error: not recorded",
		"note paused paused: is paused since 2026-11-30T03:00:00Z by anna; about 3 messages wait, the oldest for 1h0m",
		"note retrying trying: more than 5 messages refused, tried again by itself, with 2 messages behind; the latest error: not recorded",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := len(s.Findings(3 * time.Minute)); n != len(want)-1 {
		t.Errorf("with more patience: %d findings", n)
	}
}

func TestPlaces(t *testing.T) {
	if p, err := admin.ParsePlace("2/4711"); err != nil || p != (admin.Place{Shard: 2, Seq: 4711}) || p.String() != "2/4711" {
		t.Errorf("%v, %v", p, err)
	}
	for _, text := range []string{"", "/", "2", "2/", "/1", "2/0", "-1/1", "2/-1", "2/1/1", "a/1", "2/9223372036854775808", "99999/1"} {
		if p, err := admin.ParsePlace(text); err == nil {
			t.Errorf("%q is taken for %v", text, p)
		}
	}
}

// stands is a store with these messages, of which it changes what it is told to.
type stands struct {
	asked
	items   []admin.Item
	changes []admin.Operation
}

func (s *stands) Scan(context.Context, admin.Scan) (admin.Window, error) {
	return admin.Window{Items: s.items, Looked: len(s.items)}, nil
}

func (s *stands) Change(_ context.Context, op admin.Operation, _ *admin.Entry) ([]int64, error) {
	s.changes = append(s.changes, op)
	return op.Seqs, nil
}

// A dry run promises no more than the action can do: a pending message that only
// stands in the log cannot be given up.
func TestDiscardLeavesWhatOnlyTheLogHas(t *testing.T) {
	item := func(seq int64, changed time.Time) admin.Item {
		return admin.Item{Ref: admin.Ref{Route: "r", Place: admin.Place{Seq: seq}}, Standing: admin.Standing{State: outbox.StatePending, ChangedAt: changed}}
	}
	for _, dry := range []bool{true, false} {
		store := &stands{items: []admin.Item{item(1, time.Time{}), item(2, time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC))}}
		left := map[int64]string{}
		result, err := admin.New(store).Act(t.Context(), admin.Request{
			Action: admin.Discard, Filter: admin.Filter{Route: "r", States: []outbox.State{outbox.StatePending}}, DryRun: dry,
			Each: func(m admin.Touched) { left[m.Seq] = m.Left },
		})
		if err != nil || result.Matched != 1 {
			t.Errorf("dry run %v: %+v, %v", dry, result, err)
		}
		if !strings.Contains(left[1], "in the log") || left[2] != "" {
			t.Errorf("dry run %v: left alone: %v", dry, left)
		}
		if !dry && (len(store.changes) != 1 || len(store.changes[0].Seqs) != 1 || store.changes[0].Seqs[0] != 2) {
			t.Errorf("changed: %+v", store.changes)
		}
	}
}

// asked is a store that notes what it is asked.
type asked struct {
	admin.Store
	now  time.Time
	scan admin.Scan
}

func (a *asked) Layout(context.Context) (admin.Layout, error) {
	return admin.Layout{Shards: 1, Routes: []string{"r"}, Now: a.now}, nil
}

func (a *asked) Scan(_ context.Context, s admin.Scan) (admin.Window, error) {
	a.scan = s
	return admin.Window{}, nil
}

// What is enqueued while an action is at work is not meant, however long that takes.
func TestActionsMeanWhatIsThereAlready(t *testing.T) {
	store := &asked{now: time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)}
	for _, until := range []time.Time{{}, store.now.Add(time.Hour)} {
		if _, err := admin.New(store).Act(t.Context(), admin.Request{Action: admin.Replay, Filter: admin.Filter{Route: "r", Until: until}}); err != nil {
			t.Fatal(err)
		}
		if !store.scan.Filter.Until.Equal(store.now) {
			t.Errorf("until %v: it means what is there until %v", until, store.scan.Filter.Until)
		}
	}
	before := store.now.Add(-time.Hour)
	if _, err := admin.New(store).Act(t.Context(), admin.Request{Action: admin.Replay, Filter: admin.Filter{Route: "r", Until: before}}); err != nil || !store.scan.Filter.Until.Equal(before) {
		t.Errorf("%v, until %v", err, store.scan.Filter.Until)
	}
}
