package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

const (
	cursorsSQL = `SELECT route, shard, pos, topics, owner, lease_until > clock_timestamp(), CASE WHEN isfinite(lease_until) THEN lease_until END,
			(SELECT coalesce(sum(upper(r) - lower(r)), 0)::bigint FROM unnest(unsettled) AS r)
		FROM {s}.cursor ORDER BY route COLLATE "C", shard`

	routeRowsSQL = `SELECT name, paused_at, paused_by, paused_note FROM {s}.route WHERE paused_at IS NOT NULL ORDER BY name COLLATE "C"`

	membersSQL = `SELECT owner, routes, joined_at, expires FROM {s}.member WHERE expires > clock_timestamp() ORDER BY owner COLLATE "C"`

	// When the first message was enqueued that a route has not read or not
	// settled, for each route on one shard. If none of the next ones is of the
	// route's topics, it is as if the one after them were.
	oldestSQL = `SELECT c.route, c.shard, (SELECT min(at) FROM (
				(SELECT coalesce(
					(SELECT created_at FROM (SELECT seq, created_at, topic FROM {log} WHERE seq > c.pos ORDER BY seq LIMIT 1000) AS n
						WHERE {s}.takes_topic(c.topics, topic) ORDER BY seq LIMIT 1),
					(SELECT created_at FROM {log} WHERE seq > c.pos ORDER BY seq OFFSET 1000 LIMIT 1)))
				UNION ALL
				(SELECT l.created_at FROM (SELECT * FROM unnest(c.unsettled) AS r ORDER BY r LIMIT 1000) AS u (r)
					CROSS JOIN LATERAL (SELECT seq, created_at, topic FROM {log} WHERE seq >= lower(u.r) AND seq < upper(u.r) ORDER BY seq LIMIT 100) AS l
					WHERE {s}.takes_topic(c.topics, l.topic) ORDER BY l.seq LIMIT 1)
			) AS candidates (at))
		FROM {s}.cursor AS c WHERE c.shard = {shard}`

	// What a shard keeps, looked for behind what was deleted.
	storedSQL = `SELECT pg_total_relation_size({logname}::regclass), (SELECT created_at FROM {log}
		WHERE seq > coalesce((SELECT low FROM {s}.retention WHERE shard = {shard}), 0) ORDER BY seq LIMIT 1)`

	// A message that is replayed waits since an operator asked for it, however
	// old it is.
	countsSQL = `SELECT c.route, s.state, sum(n.count)::bigint, bool_or(n.count >= $1), min(o.at)
		FROM {s}.cursor AS c CROSS JOIN unnest(ARRAY['pending', 'retrying', 'blocked', 'scheduled', 'failed', 'expired', 'discarded']) AS s (state)
		CROSS JOIN LATERAL (SELECT count(*) AS count FROM (SELECT FROM {s}.parked AS p WHERE p.route = c.route AND p.state = s.state AND p.shard = c.shard ORDER BY p.seq LIMIT $1) AS rows) AS n
		CROSS JOIN LATERAL (SELECT CASE WHEN s.state = 'pending'
			THEN (SELECT min(CASE WHEN replay <> 0 THEN changed_at ELSE created_at END) FROM (SELECT p.replay, p.changed_at, p.created_at FROM {s}.parked AS p
				WHERE p.route = c.route AND p.state = s.state AND p.shard = c.shard ORDER BY p.seq LIMIT $1) AS waiting)
			ELSE (SELECT created_at FROM {s}.parked AS p WHERE p.route = c.route AND p.state = s.state AND p.shard = c.shard ORDER BY p.seq LIMIT 1) END AS at) AS o
		WHERE n.count > 0 GROUP BY c.route, s.state ORDER BY c.route COLLATE "C"`

	lastErrorsSQL = `SELECT DISTINCT ON (c.route) c.route, e.error, e.changed_at
		FROM {s}.cursor AS c CROSS JOIN unnest(ARRAY['retrying', 'failed', 'pending']) AS s (state)
		CROSS JOIN LATERAL (SELECT error, changed_at FROM {s}.parked AS p WHERE p.route = c.route AND p.state = s.state AND p.shard = c.shard ORDER BY p.seq DESC LIMIT 1) AS e
		WHERE e.error <> '' ORDER BY c.route, e.changed_at DESC`

	recentTopicsSQL = `SELECT topic, count(*), max(created_at) FROM (SELECT topic, created_at FROM {log} ORDER BY seq DESC LIMIT $1) AS n GROUP BY topic`
)

// Status is as admin.Reader says.
func (a *Admin) Status(ctx context.Context, o admin.StatusOptions) (admin.Status, error) {
	o = o.Normal()
	layout, err := CheckSchema(ctx, a.db, a.schema)
	if err != nil {
		return admin.Status{}, err
	}
	r := statusReader{schema: a.schema, status: admin.Status{Shards: layout.Shards, Routes: []admin.RouteStatus{}, Relays: []admin.RelayStatus{}, Unrouted: []admin.Unrouted{}}}
	if err := a.read(ctx, func(tx pgx.Tx) error { return r.read(ctx, tx, o) }); err != nil {
		return admin.Status{}, fmt.Errorf("read how the routes stand: %w", err)
	}
	return r.status, nil
}

// statusReader puts a Status together.
type statusReader struct {
	schema Schema
	status admin.Status
	tails  map[int]int64
	topics []admin.Unrouted // of recent messages, all of them
}

func (r *statusReader) read(ctx context.Context, tx pgx.Tx, o admin.StatusOptions) error {
	shards := shardsUpTo(r.status.Shards)
	var err error
	if r.tails, err = Tails(ctx, tx, r.schema, shards); err != nil {
		return err
	}
	onEachLog := func(statement string) string {
		parts := make([]string, len(shards))
		for i := range shards {
			parts[i] = "(" + r.schema.logSQL(statement, i) + ")"
		}
		return strings.Join(parts, " UNION ALL ")
	}
	var batch pgx.Batch
	for _, q := range []struct {
		sql  string
		args []any
		each func(pgx.CollectableRow) error
	}{
		{nowSQL, nil, func(row pgx.CollectableRow) error { return row.Scan(&r.status.At) }},
		{cursorsSQL, nil, r.cursor},
		{routeRowsSQL, nil, r.paused},
		{membersSQL, nil, r.member},
		{onEachLog(oldestSQL), nil, r.oldest},
		{onEachLog(storedSQL), nil, r.stored},
		{countsSQL, []any{o.CountUpTo}, r.count},
		{lastErrorsSQL, nil, r.lastError},
		{`SELECT topic, sum(count)::bigint, max(newest) FROM (` + onEachLog(recentTopicsSQL) + `) AS t (topic, count, newest) GROUP BY topic`, []any{o.LookBack}, r.topic},
	} {
		batch.Queue(r.schema.sql(q.sql), q.args...).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := q.each(rows); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	if err := r.inspect(ctx, tx, shards); err != nil {
		return err
	}
	return r.finish()
}

// inspect looks for what somebody has changed about the log. A relay that found
// numbers given out again has given the lease up.
func (r *statusReader) inspect(ctx context.Context, tx pgx.Tx, shards []int) error {
	for _, shard := range shards {
		problems, err := Inspect(ctx, tx, r.schema, shard)
		if err != nil {
			return err
		}
		r.status.Log = append(r.status.Log, problems...)
	}
	tails, err := Tails(ctx, tx, r.schema, shards) // not those from before the positions were read
	if err != nil {
		return err
	}
	for i := range r.status.Routes {
		for _, s := range r.status.Routes[i].Shards {
			route := r.status.Routes[i].Name
			var problem *admin.LogProblem
			if s.Owner == "" {
				if problem, err = reused(ctx, tx, r.schema, route, s.Shard); err != nil {
					return err
				}
			}
			switch tail := tails[s.Shard]; {
			case problem != nil:
				r.status.Log = append(r.status.Log, *problem)
			case tail < s.Position:
				r.status.Log = append(r.status.Log, r.schema.wentBack(route, s.Shard, tail, s.Position))
			}
		}
	}
	return nil
}

// route is the one of that name, made if there is none.
func (r *statusReader) route(name string) *admin.RouteStatus {
	i, found := slices.BinarySearchFunc(r.status.Routes, name, func(s admin.RouteStatus, name string) int { return strings.Compare(s.Name, name) })
	if !found {
		r.status.Routes = slices.Insert(r.status.Routes, i, admin.RouteStatus{
			Name: name, Topics: []string{}, Orphaned: true, Shards: []admin.ShardStatus{}, Parked: []admin.StateCount{},
		})
	}
	return &r.status.Routes[i]
}

func (r *statusReader) cursor(row pgx.CollectableRow) error {
	var name, owner string
	var s admin.ShardStatus
	var held bool
	var until *time.Time
	if err := row.Scan(&name, &s.Shard, &s.Position, &s.Topics, &owner, &held, &until, &s.Unsettled); err != nil {
		return err
	}
	s.Tail, s.LeaseUntil = max(r.tails[s.Shard], s.Position), orZero(until)
	route := r.route(name)
	if held {
		s.Owner, route.Orphaned = owner, false
	}
	route.Add(s)
	return nil
}

func (r *statusReader) stored(row pgx.CollectableRow) error {
	var bytes int64
	var oldest *time.Time
	if err := row.Scan(&bytes, &oldest); err != nil {
		return err
	}
	s := &r.status.Stored
	s.Bytes += bytes
	if oldest != nil && (s.Oldest.IsZero() || oldest.Before(s.Oldest)) {
		s.Oldest = *oldest
	}
	return nil
}

func (r *statusReader) paused(row pgx.CollectableRow) error {
	var name, by, note string
	var at time.Time
	if err := row.Scan(&name, &at, &by, &note); err != nil {
		return err
	}
	route := r.route(name)
	route.Paused, route.PausedAt, route.PausedBy, route.PausedNote = true, at, by, note
	return nil
}

func (r *statusReader) member(row pgx.CollectableRow) error {
	m, err := pgx.RowToStructByPos[admin.RelayStatus](row)
	if err != nil {
		return err
	}
	for _, name := range m.Routes {
		r.route(name).Orphaned = false
	}
	r.status.Relays = append(r.status.Relays, m)
	return nil
}

func (r *statusReader) oldest(row pgx.CollectableRow) error {
	var name string
	var shard int
	var at *time.Time
	if err := row.Scan(&name, &shard, &at); err != nil || at == nil {
		return err
	}
	if route := r.route(name); route.OldestPending.IsZero() || at.Before(route.OldestPending) {
		route.OldestPending = *at
	}
	return nil
}

func (r *statusReader) count(row pgx.CollectableRow) error {
	var name string
	var c admin.StateCount
	var oldest *time.Time
	if err := row.Scan(&name, &c.State, &c.Count, &c.AtLeast, &oldest); err != nil {
		return err
	}
	c.Oldest = orZero(oldest)
	route := r.route(name)
	if c.State == outbox.StatePending { // it was read, and put back untried
		route.Pending += c.Count
		if route.OldestPending.IsZero() || c.Oldest.Before(route.OldestPending) {
			route.OldestPending = c.Oldest
		}
		return nil
	}
	route.Parked = append(route.Parked, c)
	return nil
}

func (r *statusReader) lastError(row pgx.CollectableRow) error {
	var name, text string
	var at time.Time
	if err := row.Scan(&name, &text, &at); err != nil {
		return err
	}
	route := r.route(name)
	route.LastError, route.LastErrorAt = text, at
	return nil
}

func (r *statusReader) topic(row pgx.CollectableRow) error {
	var t admin.Unrouted
	err := row.Scan(&t.Topic, &t.Messages, &t.Newest)
	r.topics = append(r.topics, t)
	return err
}

// finish finds the topics that no route takes, and puts counts in their order.
func (r *statusReader) finish() error {
	var takes []func(string) bool
	for i := range r.status.Routes {
		route := &r.status.Routes[i]
		slices.SortFunc(route.Parked, func(a, b admin.StateCount) int {
			return slices.Index(admin.States, a.State) - slices.Index(admin.States, b.State)
		})
		if len(route.Topics) == 0 {
			continue
		}
		match, err := relay.Matcher(route.Topics)
		if err != nil {
			return errors.Join(fmt.Errorf("the topics of route %q", route.Name), err)
		}
		takes = append(takes, match)
	}
	for _, t := range r.topics {
		if !slices.ContainsFunc(takes, func(match func(string) bool) bool { return match(t.Topic) }) {
			r.status.Unrouted = append(r.status.Unrouted, t)
		}
	}
	slices.SortFunc(r.status.Unrouted, func(a, b admin.Unrouted) int { return strings.Compare(a.Topic, b.Topic) })
	return nil
}
