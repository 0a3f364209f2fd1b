package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
)

// Admin is what operators do with a Store. Safe for concurrent use.
type Admin struct{ s *Store }

var _ admin.Store = (*Admin)(nil)

// NewAdmin returns an Admin of the store.
func NewAdmin(s *Store) *Admin { return &Admin{s} }

// Layout is as admin.Reader says.
func (a *Admin) Layout(context.Context) (admin.Layout, error) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	now := time.Now()
	return admin.Layout{Shards: len(a.s.shards), Routes: a.s.routes(now), Now: now}, nil
}

// routes are the names of all that are known, sorted. The caller holds mu.
func (s *Store) routes(now time.Time) []string {
	names := slices.Collect(maps.Keys(s.paused))
	for at := range s.cursors {
		names = append(names, at.route)
	}
	for _, m := range s.members {
		if now.Before(m.expires) {
			names = append(names, m.routes...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Find is as admin.Reader says.
func (a *Admin) Find(_ context.Context, id uuid.UUID) (places []admin.Place, err error) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	for shard, log := range a.s.shards {
		for i := range log {
			if log[i].message.ID == id && log[i].tx.state == txCommitted {
				places = append(places, admin.Place{Shard: shard, Seq: int64(i + 1)})
			}
		}
	}
	return places, nil
}

// Message is as admin.Reader says.
func (a *Admin) Message(_ context.Context, at admin.Place) (m outbox.Message, inLog bool, err error) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	log := a.s.shards[at.Shard]
	if at.Seq < 1 || at.Seq > int64(len(log)) || log[at.Seq-1].tx.state != txCommitted {
		return m, false, fmt.Errorf("memstore: %w: nothing is at %s", admin.ErrNotFound, at)
	}
	m = log[at.Seq-1].message
	m.Payload, m.Headers = slices.Clone(m.Payload), maps.Clone(m.Headers)
	return m, true, nil
}

// Change is as admin.Changer says.
func (a *Admin) Change(ctx context.Context, op admin.Operation, entry *admin.Entry) (changed []int64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	changed, err = a.s.operate(op)
	if err == nil && len(changed) > 0 {
		a.s.record(entry, int64(len(changed)))
	}
	return changed, err
}

// record adds the entry, or raises its count. The caller holds mu.
func (s *Store) record(entry *admin.Entry, count int64) {
	entry.Count += count
	if entry.ID == 0 {
		entry.ID, entry.At = int64(len(s.audit)+1), time.Now()
		s.audit = append(s.audit, *entry)
	}
	s.audit[entry.ID-1].Count = entry.Count
}

// Audit is as admin.Auditor says.
func (a *Admin) Audit(_ context.Context, before int64, limit int) (entries []admin.Entry, err error) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	last := int64(len(a.s.audit))
	if before > 0 {
		last = min(last, before-1)
	}
	for id := last; id > 0 && len(entries) < limit; id-- {
		entries = append(entries, a.s.audit[id-1])
	}
	return entries, nil
}

// SetPaused is as admin.Router says.
func (a *Admin) SetPaused(_ context.Context, route string, paused bool, entry *admin.Entry) (changed bool, err error) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	if !a.s.setPaused(route, paused, pause{time.Now(), entry.By, entry.Note}) {
		return false, nil
	}
	a.s.record(entry, 0)
	return true, nil
}

// RemoveRoute is as admin.Router says.
func (a *Admin) RemoveRoute(_ context.Context, route string, force bool, entry *admin.Entry) (removed admin.Removed, err error) {
	s := a.s
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if owner := s.server(route, now); owner != "" && !force {
		return removed, fmt.Errorf("memstore: remove route %q: %w: %s", route, admin.ErrServed, owner)
	}
	for shard := range s.shards {
		at := cursorKey{route, shard}
		c := s.cursors[at]
		if c == nil {
			continue
		}
		removed.Pending += int64(len(s.shards[shard])) - c.pos + c.unsettled.Len()
		removed.Parked += int64(len(c.parked))
		c.token++ // its lease is fenced
		delete(s.cursors, at)
	}
	delete(s.paused, route)
	s.record(entry, removed.Parked)
	s.wake()
	return removed, nil
}

// server is a relay that has a lease on the route, or serves it; empty: none.
func (s *Store) server(route string, now time.Time) string {
	for at, c := range s.cursors {
		if at.route == route && c.owner != "" && now.Before(c.expires) {
			return c.owner
		}
	}
	for owner, m := range s.members {
		if now.Before(m.expires) && slices.Contains(m.routes, route) {
			return owner
		}
	}
	return ""
}
