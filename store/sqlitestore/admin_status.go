package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

const (
	sqlCursors = `SELECT route, shard, pos, unsettled, topics, owner, expires > ` + sqlNow + `, expires FROM postrider_cursor ORDER BY route, shard`
	sqlPaused  = `SELECT name, paused_at, paused_by, paused_note FROM postrider_route WHERE paused_at IS NOT NULL ORDER BY name`
	sqlMembers = `SELECT owner, routes, joined, expires FROM postrider_member WHERE expires > ` + sqlNow + ` ORDER BY owner`
	sqlNext    = `SELECT topic, created_at FROM {log} WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3`
	sqlCount   = `SELECT count(*) FROM (SELECT 1 FROM postrider_parked WHERE route = ? AND state = ? AND shard = ? LIMIT ?)`
	sqlFirst   = `SELECT coalesce(p.created_at, l.created_at) FROM postrider_parked AS p LEFT JOIN {log} AS l ON l.seq = p.seq
	WHERE p.route = ? AND p.state = ? AND p.shard = ? ORDER BY p.seq LIMIT 1`
	// sqlFirstPending: one that is replayed waits since an operator asked for it,
	// however old it is.
	sqlFirstPending = `SELECT min(CASE WHEN p.replay <> 0 THEN p.changed_at ELSE coalesce(p.created_at, l.created_at) END)
	FROM (SELECT seq, replay, changed_at, created_at FROM postrider_parked WHERE route = ? AND state = ? AND shard = ? ORDER BY seq LIMIT ?) AS p LEFT JOIN {log} AS l ON l.seq = p.seq`
	sqlLastError = `SELECT error, changed_at FROM postrider_parked WHERE route = ? AND state = ? AND shard = ? ORDER BY seq DESC LIMIT 1`
	sqlRecent    = `SELECT topic, count(*), max(created_at) FROM (SELECT topic, created_at FROM {log} ORDER BY seq DESC LIMIT ?) GROUP BY topic ORDER BY topic`
)

// lookAhead is how many messages are looked at for the oldest pending one.
const lookAhead = 1000

// Status is as admin.Reader says.
func (a *Admin) Status(ctx context.Context, o admin.StatusOptions) (admin.Status, error) {
	r := statusReader{ctx: ctx, options: o.Normal(), status: admin.Status{Routes: []admin.RouteStatus{}, Relays: []admin.RelayStatus{}, Unrouted: []admin.Unrouted{}}}
	err := a.read(ctx, func(tx *sql.Tx) error {
		r.tx = tx
		return errors.Join(r.read()...)
	})
	if err != nil {
		return admin.Status{}, fmt.Errorf("sqlitestore: read how the routes stand: %w", err)
	}
	return r.status, nil
}

// stored tells what the file takes, and from when the oldest message is.
func (r *statusReader) stored() error {
	s := &r.status.Stored
	err := r.tx.QueryRowContext(r.ctx, `SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()`).Scan(&s.Bytes)
	for shard := 0; shard < r.status.Shards && err == nil; shard++ {
		var at int64
		err = r.tx.QueryRowContext(r.ctx, `SELECT created_at FROM `+logTable(shard)+` ORDER BY seq LIMIT 1`).Scan(&at)
		switch oldest := time.UnixMicro(at).UTC(); {
		case errors.Is(err, sql.ErrNoRows):
			err = nil
		case err == nil && (s.Oldest.IsZero() || oldest.Before(s.Oldest)):
			s.Oldest = oldest
		}
	}
	return err
}

// statusReader puts a Status together.
type statusReader struct {
	ctx     context.Context
	tx      *sql.Tx
	options admin.StatusOptions
	status  admin.Status
	takes   []func(string) bool
}

func (r *statusReader) read() []error {
	var layout admin.Layout
	if err := readLayout(r.ctx, r.tx, &layout); err != nil {
		return []error{err}
	}
	r.status.At, r.status.Shards = layout.Now, layout.Shards
	for _, name := range layout.Routes {
		r.status.Routes = append(r.status.Routes, admin.RouteStatus{
			Name: name, Topics: []string{}, Orphaned: true, Shards: []admin.ShardStatus{}, Parked: []admin.StateCount{},
		})
	}
	for _, q := range []struct {
		sql  string
		each func(scan func(...any) error) error
	}{{sqlCursors, r.cursor}, {sqlPaused, r.paused}, {sqlMembers, r.member}} {
		if err := eachRow(r.ctx, r.tx, q.sql, nil, q.each); err != nil {
			return []error{err}
		}
	}
	errs := []error{r.stored()}
	for i := range r.status.Routes {
		errs = append(errs, r.parked(&r.status.Routes[i]))
	}
	for shard := range layout.Shards {
		errs = append(errs, r.topics(shard))
	}
	return errs
}

func (r *statusReader) route(name string) *admin.RouteStatus {
	i := slices.IndexFunc(r.status.Routes, func(s admin.RouteStatus) bool { return s.Name == name })
	return &r.status.Routes[i] // the layout has them all
}

func decodeTopics(text string) (topics []string, err error) {
	if err := json.Unmarshal([]byte(text), &topics); err != nil {
		return nil, fmt.Errorf("decode the route's topics: %w", err)
	}
	return topics, nil
}

func (r *statusReader) cursor(scan func(...any) error) error {
	var name, owner, unsettled, topics string
	var s admin.ShardStatus
	var held bool
	var expires int64
	if err := scan(&name, &s.Shard, &s.Position, &unsettled, &topics, &owner, &held, &expires); err != nil {
		return err
	}
	set, err := decodeNumbers(unsettled)
	if err != nil {
		return fmt.Errorf("the cursor of route %q, shard %d, is damaged: %w", name, s.Shard, err)
	}
	route := r.route(name)
	if s.Topics, err = decodeTopics(topics); err != nil {
		return err
	}
	match, err := relay.Matcher(s.Topics)
	if err != nil {
		return err
	}
	r.takes = append(r.takes, match)
	if err := r.tx.QueryRowContext(r.ctx, sqlLastNumber, logTable(s.Shard)).Scan(&s.Tail); err != nil {
		return err
	}
	s.Tail, s.Unsettled = max(s.Tail, s.Position), set.Len()
	if held {
		s.Owner, route.Orphaned = owner, false
	}
	if expires > 0 {
		s.LeaseUntil = time.UnixMicro(expires).UTC()
	}
	route.Add(s)
	return r.oldest(route, s, set, match)
}

// oldest finds the first message that was not read or not settled. If none of
// the next ones is of the route's topics, it is as if the one after them were.
func (r *statusReader) oldest(route *admin.RouteStatus, s admin.ShardStatus, unsettled numset.Set, match func(string) bool) error {
	ranges := unsettled.Ranges()
	ranges = append(slices.Clone(ranges[:min(len(ranges), 100)]), numset.Range{First: s.Position + 1, Last: maxNumber})
	for _, numbers := range ranges {
		var at int64
		found, looked := false, 0
		err := eachRow(r.ctx, r.tx, onLog(sqlNext, s.Shard), []any{numbers.First - 1, numbers.Last, lookAhead + 1}, func(scan func(...any) error) error {
			if found {
				return nil
			}
			var topic string
			if err := scan(&topic, &at); err != nil {
				return err
			}
			looked++
			found = match(topic) || looked > lookAhead
			return nil
		})
		if err != nil {
			return err
		}
		if found {
			if t := time.UnixMicro(at).UTC(); route.OldestPending.IsZero() || t.Before(route.OldestPending) {
				route.OldestPending = t
			}
			return nil
		}
	}
	return nil
}

func (r *statusReader) paused(scan func(...any) error) error {
	var name, by, note string
	var at int64
	if err := scan(&name, &at, &by, &note); err != nil {
		return err
	}
	route := r.route(name)
	route.Paused, route.PausedAt, route.PausedBy, route.PausedNote = true, time.UnixMicro(at).UTC(), by, note
	return nil
}

func (r *statusReader) member(scan func(...any) error) error {
	m, routes, err := scanMember(scan)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(routes), &m.Routes); err != nil {
		return fmt.Errorf("the routes of relay %q: %w", m.Owner, err)
	}
	for _, name := range m.Routes {
		r.route(name).Orphaned = false
	}
	r.status.Relays = append(r.status.Relays, m)
	return nil
}

// parked counts what is parked on a route.
func (r *statusReader) parked(route *admin.RouteStatus) error {
	for _, state := range admin.States {
		count := admin.StateCount{State: state}
		for _, s := range route.Shards {
			var n int64
			if err := r.tx.QueryRowContext(r.ctx, sqlCount, route.Name, state, s.Shard, r.options.CountUpTo).Scan(&n); err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			count.Count += n
			count.AtLeast = count.AtLeast || n >= int64(r.options.CountUpTo)
			if err := r.parkedOf(route, state, s.Shard, &count); err != nil {
				return err
			}
		}
		switch {
		case count.Count == 0:
		case state == outbox.StatePending: // it was read, and put back untried
			route.Pending += count.Count
			if route.OldestPending.IsZero() || count.Oldest.Before(route.OldestPending) {
				route.OldestPending = count.Oldest
			}
		default:
			route.Parked = append(route.Parked, count)
		}
	}
	return nil
}

// parkedOf looks at the first and the last message of a state in a shard.
func (r *statusReader) parkedOf(route *admin.RouteStatus, state outbox.State, shard int, count *admin.StateCount) error {
	var first sql.NullInt64
	query, args := sqlFirst, []any{route.Name, state, shard}
	if state == outbox.StatePending {
		query, args = sqlFirstPending, append(args, r.options.CountUpTo)
	}
	if err := r.tx.QueryRowContext(r.ctx, onLog(query, shard), args...).Scan(&first); err != nil {
		return err
	}
	if at := fromMicros(first); count.Oldest.IsZero() || at.Before(count.Oldest) {
		count.Oldest = at
	}
	if state != outbox.StateRetrying && state != outbox.StateFailed && state != outbox.StatePending {
		return nil
	}
	var text string
	var changed int64
	if err := r.tx.QueryRowContext(r.ctx, sqlLastError, route.Name, state, shard).Scan(&text, &changed); err != nil {
		return err
	}
	if at := time.UnixMicro(changed).UTC(); text != "" && at.After(route.LastErrorAt) {
		route.LastError, route.LastErrorAt = text, at
	}
	return nil
}

// topics adds the topics of a shard's recent messages that no route takes.
func (r *statusReader) topics(shard int) error {
	return eachRow(r.ctx, r.tx, onLog(sqlRecent, shard), []any{r.options.LookBack}, func(scan func(...any) error) error {
		var u admin.Unrouted
		var newest int64
		if err := scan(&u.Topic, &u.Messages, &newest); err != nil {
			return err
		}
		if slices.ContainsFunc(r.takes, func(takes func(string) bool) bool { return takes(u.Topic) }) {
			return nil
		}
		u.Newest = time.UnixMicro(newest).UTC()
		i, found := slices.BinarySearchFunc(r.status.Unrouted, u.Topic, func(x admin.Unrouted, topic string) int { return strings.Compare(x.Topic, topic) })
		if !found {
			r.status.Unrouted = slices.Insert(r.status.Unrouted, i, u)
			return nil
		}
		known := &r.status.Unrouted[i]
		known.Messages += u.Messages
		if u.Newest.After(known.Newest) {
			known.Newest = u.Newest
		}
		return nil
	})
}
