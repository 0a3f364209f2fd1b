package memstore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// Scan is as admin.Reader says.
func (a *Admin) Scan(_ context.Context, scan admin.Scan) (admin.Window, error) {
	w := admin.Window{Last: scan.After}
	fits, err := fitting(scan.Filter)
	if err != nil {
		return w, fmt.Errorf("memstore: list messages of route %q: %w", scan.Route, err)
	}
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	c := a.s.cursors[cursorKey{scan.Route, scan.Shard}]
	if c == nil {
		return w, nil // the route has not begun with this shard
	}
	log := a.s.shards[scan.Shard]
	last := min(cmp.Or(scan.UpTo, math.MaxInt64), int64(len(log)))
	for n := scan.After + 1; n <= last; n++ {
		row, p := &log[n-1], c.parked[n]
		if row.tx.state != txCommitted || p == nil && scan.Filter.ParkedOnly() {
			continue
		}
		w.Last, w.Looked = n, w.Looked+1
		item := c.item(row, p, admin.Ref{Route: scan.Route, Place: admin.Place{Shard: scan.Shard, Seq: n}})
		if item.State != "" && fits(&item) {
			w.Items = append(w.Items, item)
		}
		if len(w.Items) == scan.Limit || w.Looked == scan.Look {
			w.More = true
			break
		}
	}
	return w, nil
}

// item is a message as it stands; p is nil if it is not parked. One that the route
// does not take has no state.
func (c *cursor) item(row *row, p *parked, at admin.Ref) admin.Item {
	m := &row.message
	item := admin.Item{Ref: at, ID: m.ID, Topic: m.Topic, Key: m.Key, Type: m.Type, CreatedAt: m.CreatedAt, NotBefore: m.NotBefore, Expires: m.Expires}
	switch {
	case p != nil:
		item.Expires = p.message.Expires
		item.Standing = p.standing()
	case at.Seq <= c.started || !c.matches(m.Topic):
	case at.Seq > c.pos || c.unsettled.Has(at.Seq):
		item.State = outbox.StatePending
	case at.Seq > c.topicsFrom:
		item.State = outbox.StateSent
	default:
		item.State = admin.Unknown
	}
	return item
}

func (p *parked) standing() admin.Standing {
	s := admin.Standing{
		State: p.state, Attempts: p.attempts, Error: p.err, ChangedAt: stored(p.changedAt), Replay: p.message.Replay,
		Holds: p.state == outbox.StateFailed && p.closing(),
	}
	switch {
	case p.changed(): // due for the relay to hear what an operator did
	case p.due.Equal(atOnce):
		s.DueAt = s.ChangedAt
	default:
		s.DueAt = stored(p.due)
	}
	return s
}

// fitting compiles a filter.
func fitting(f admin.Filter) (func(*admin.Item) bool, error) {
	takes := func(string) bool { return true }
	if f.Topic != "" {
		var err error
		if takes, err = relay.Matcher([]string{f.Topic}); err != nil {
			return nil, err
		}
	}
	within := func(at time.Time) bool {
		return (f.Since.IsZero() || !at.Before(f.Since)) && (f.Until.IsZero() || at.Before(f.Until))
	}
	return func(i *admin.Item) bool {
		return (len(f.States) == 0 || slices.Contains(f.States, i.State)) && takes(i.Topic) && (f.Key == nil || *f.Key == i.Key) &&
			(f.Type == "" || f.Type == i.Type) && within(i.CreatedAt)
	}, nil
}
