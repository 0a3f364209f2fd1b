package memstore

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
)

// lookAhead is how many messages of other topics may be in front of the oldest
// pending one; behind more, it is as if the next one were of the route's topics.
const lookAhead = 1000

// Status is as admin.Reader says.
func (a *Admin) Status(_ context.Context, o admin.StatusOptions) (admin.Status, error) {
	o = o.Normal()
	s := a.s
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	status := admin.Status{At: now, Shards: len(s.shards), Routes: []admin.RouteStatus{}, Relays: []admin.RelayStatus{}, Unrouted: s.unrouted(o.LookBack)}
	for _, log := range s.shards {
		if len(log) > 0 && (status.Stored.Oldest.IsZero() || log[0].message.CreatedAt.Before(status.Stored.Oldest)) {
			status.Stored.Oldest = log[0].message.CreatedAt
		}
	}
	for _, name := range s.routes(now) {
		status.Routes = append(status.Routes, s.routeStatus(name, o.CountUpTo, now))
	}
	for _, owner := range slices.Sorted(maps.Keys(s.members)) {
		if m := s.members[owner]; now.Before(m.expires) {
			status.Relays = append(status.Relays, admin.RelayStatus{Owner: owner, Routes: slices.Clone(m.routes), JoinedAt: m.since, Expires: m.expires})
		}
	}
	return status, nil
}

func (s *Store) routeStatus(name string, countUpTo int, now time.Time) admin.RouteStatus {
	r := admin.RouteStatus{Name: name, Topics: []string{}, Orphaned: s.server(name, now) == "", Shards: []admin.ShardStatus{}, Parked: []admin.StateCount{}}
	if p, ok := s.paused[name]; ok {
		r.Paused, r.PausedAt, r.PausedBy, r.PausedNote = true, p.at, p.by, p.note
	}
	counts := make(map[outbox.State]*admin.StateCount)
	for shard := range s.shards {
		c := s.cursors[cursorKey{name, shard}]
		if c == nil {
			continue
		}
		one := admin.ShardStatus{Shard: shard, Topics: slices.Clone(c.topics), Position: c.pos, Tail: int64(len(s.shards[shard])), Unsettled: c.unsettled.Len()}
		if c.owner != "" {
			one.LeaseUntil = c.expires
			if now.Before(c.expires) {
				one.Owner = c.owner
			}
		}
		r.Add(one)
		older(&r.OldestPending, c.oldestPending(s.shards[shard]))
		c.count(&r, counts, countUpTo)
	}
	for _, state := range admin.States {
		switch count := counts[state]; {
		case count == nil:
		case state == outbox.StatePending: // it was read, and put back untried
			r.Pending += count.Count
			older(&r.OldestPending, count.Oldest)
		default:
			r.Parked = append(r.Parked, *count)
		}
	}
	return r
}

// older lowers a time, if there is another one that is earlier.
func older(at *time.Time, other time.Time) {
	if !other.IsZero() && (at.IsZero() || other.Before(*at)) {
		*at = other
	}
}

// oldestPending is when the first message was enqueued that was not read or not
// settled; zero if there is none.
func (c *cursor) oldestPending(log []row) time.Time {
	waiting := slices.Collect(c.unsettled.All())
	for n := c.pos + 1; n <= int64(len(log)); n++ {
		waiting = append(waiting, n)
	}
	looked := 0
	for _, n := range waiting {
		r := &log[n-1]
		if r.tx.state != txCommitted {
			continue
		}
		if looked++; c.matches(r.message.Topic) || looked > lookAhead {
			return r.message.CreatedAt
		}
	}
	return time.Time{}
}

// count adds what is parked, at most so many of a state.
func (c *cursor) count(r *admin.RouteStatus, counts map[outbox.State]*admin.StateCount, upTo int) {
	here := make(map[outbox.State]int)
	last := make(map[outbox.State]*parked)
	for _, n := range slices.Sorted(maps.Keys(c.parked)) {
		p := c.parked[n]
		last[p.state] = p
		if here[p.state] == upTo {
			continue
		}
		here[p.state]++
		sum := counts[p.state]
		if sum == nil {
			sum = &admin.StateCount{State: p.state}
			counts[p.state] = sum
		}
		sum.Count++
		sum.AtLeast = sum.AtLeast || here[p.state] == upTo
		switch {
		case p.message.Replay != 0: // it waits since an operator asked for it
			older(&sum.Oldest, stored(p.changedAt))
		case here[p.state] == 1 || p.state == outbox.StatePending:
			older(&sum.Oldest, p.message.CreatedAt)
		}
	}
	for _, state := range []outbox.State{outbox.StatePending, outbox.StateRetrying, outbox.StateFailed} {
		if p := last[state]; p != nil && p.err != "" && p.changedAt.After(r.LastErrorAt) {
			r.LastError, r.LastErrorAt = p.err, stored(p.changedAt)
		}
	}
}

// unrouted are the topics among the newest messages of each shard that no route
// takes.
func (s *Store) unrouted(lookBack int) []admin.Unrouted {
	found := make(map[string]admin.Unrouted)
	for _, log := range s.shards {
		looked := 0
		for i := len(log) - 1; i >= 0 && looked < lookBack; i-- {
			r := &log[i]
			if r.tx.state != txCommitted {
				continue
			}
			looked++
			u := found[r.message.Topic]
			u.Topic, u.Messages = r.message.Topic, u.Messages+1
			if r.message.CreatedAt.After(u.Newest) {
				u.Newest = r.message.CreatedAt
			}
			found[u.Topic] = u
		}
	}
	for _, c := range s.cursors {
		maps.DeleteFunc(found, func(topic string, _ admin.Unrouted) bool { return c.matches(topic) })
	}
	all := slices.AppendSeq([]admin.Unrouted{}, maps.Values(found))
	slices.SortFunc(all, func(a, b admin.Unrouted) int { return strings.Compare(a.Topic, b.Topic) })
	return all
}
