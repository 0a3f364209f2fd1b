package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
)

// Both statements look at $5 numbers after $3 and up to $4 and return those of
// them that fit, at most $6, each row with how many were looked at and where
// that ended; one row with nulls if none fits.
const (
	scanFits = `($7::text[] IS NULL OR state = ANY ($7)) AND ($8::text = '' OR {s}.takes_topic(ARRAY[$8::text], topic)) AND ($9::text IS NULL OR key = $9)
			AND ($10::text = '' OR type = $10) AND ($11::timestamptz IS NULL OR created_at >= $11) AND ($12::timestamptz IS NULL OR created_at < $12)`

	scanResult = ` SELECT i.looked, i.last, f.* FROM (SELECT count(*) AS looked, max(seq) AS last FROM looked) AS i LEFT JOIN LATERAL (
			SELECT seq, id, topic, key, type, created_at, not_before, expires, state, attempts, error, due_at, changed_at, holds, replay
			FROM found WHERE ` + scanFits + ` ORDER BY seq LIMIT $6) AS f ON true ORDER BY f.seq`

	parkedColumns = `p.seq, p.id, p.topic, p.key, p.type, p.created_at, p.not_before, p.expires, p.state, p.attempts, p.error,
			CASE WHEN p.state IN ('failed', 'expired', 'discarded') THEN NULL WHEN p.due_at = '-infinity' THEN p.changed_at WHEN isfinite(p.due_at) THEN p.due_at END AS due_at, p.changed_at, p.state = 'failed' AND p.closes AND p.due_at IS NULL AS holds, p.replay`

	// Parked messages alone, state by state, each in order of its index.
	scanParkedSQL = `WITH found AS MATERIALIZED (
			SELECT ` + parkedColumns + ` FROM unnest($7::text[]) AS s (state) CROSS JOIN LATERAL (
				SELECT * FROM {s}.parked WHERE route = $1 AND state = s.state AND shard = $2 AND seq > $3 AND seq <= $4 ORDER BY seq LIMIT $5) AS p
			ORDER BY p.seq LIMIT $5),
		looked AS (SELECT seq FROM found)` + scanResult

	// The log, and what is parked and no longer in it. Numbers without an outcome
	// are one value for the statement: compared with each row where they are
	// stored they would be read anew each time. OFFSET 0 has rows looked up one by
	// one, since the planner does not know how few they are.
	scanLogSQL = `WITH looked AS MATERIALIZED (SELECT seq FROM (
				(SELECT seq FROM {log} WHERE seq > $3 AND seq <= $4 ORDER BY seq LIMIT $5) UNION
				(SELECT seq FROM {s}.parked WHERE route = $1 AND shard = $2 AND seq > $3 AND seq <= $4 ORDER BY seq LIMIT $5)) AS n
			ORDER BY seq LIMIT $5),
		waiting AS (SELECT range_agg(numbers) AS numbers FROM (
				SELECT unnest(unsettled) FROM {s}.cursor WHERE route = $1 AND shard = $2 UNION ALL
				SELECT unnest(numbers) FROM {s}.gap WHERE route = $1 AND shard = $2) AS w (numbers)
			WHERE numbers && int8range($3, $4, '(]')),
		found AS (
			SELECT l.seq, l.id, l.topic, l.key, l.type, l.created_at, l.not_before, l.expires,
				CASE WHEN p.state IS NOT NULL THEN p.state
					WHEN l.seq > c.pos OR coalesce((SELECT numbers FROM waiting) @> l.seq, false) THEN 'pending'
					WHEN l.seq > c.topics_from THEN 'sent' ELSE 'unknown' END AS state,
				coalesce(p.attempts, 0) AS attempts, coalesce(p.error, '') AS error, p.due_at, p.changed_at,
				coalesce(p.holds, false) AS holds, coalesce(p.replay, 0) AS replay
			FROM {s}.cursor AS c CROSS JOIN {log} AS l LEFT JOIN LATERAL (
				SELECT ` + parkedColumns + ` FROM {s}.parked AS p WHERE p.route = $1 AND p.shard = $2 AND p.seq = l.seq OFFSET 0) AS p ON true
			WHERE c.route = $1 AND c.shard = $2 AND l.seq > $3 AND l.seq <= (SELECT max(seq) FROM looked)
				AND (p.state IS NOT NULL OR l.seq > c.started AND {s}.takes_topic(c.topics, l.topic))
			UNION ALL
			SELECT ` + parkedColumns + ` FROM {s}.parked AS p WHERE p.route = $1 AND p.shard = $2 AND p.seq > $3 AND p.seq <= (SELECT max(seq) FROM looked)
				AND NOT EXISTS (SELECT FROM {log} AS l WHERE l.seq = p.seq OFFSET 0))` + scanResult

	// Where messages without an outcome can be.
	waitingFromSQL = `SELECT least(c.pos, lower(c.unsettled) - 1,
			(SELECT min(lower(numbers)) - 1 FROM {s}.gap WHERE route = $1 AND shard = $2),
			(SELECT seq - 1 FROM {s}.parked WHERE route = $1 AND state = 'pending' AND shard = $2 ORDER BY seq LIMIT 1))
		FROM {s}.cursor AS c WHERE c.route = $1 AND c.shard = $2`

	positionSQL = `SELECT pos FROM {s}.cursor WHERE route = $1 AND shard = $2`

	atNumberSQL = `SELECT seq, created_at FROM {log} WHERE seq >= $1 ORDER BY seq LIMIT 1`
)

// Scan is as admin.Reader says.
func (a *Admin) Scan(ctx context.Context, s admin.Scan) (admin.Window, error) {
	w := admin.Window{Last: s.After}
	err := a.read(ctx, func(tx pgx.Tx) error {
		from, to, err := a.bounds(ctx, tx, s)
		if err != nil || from >= to {
			return err
		}
		statement := scanLogSQL
		if s.Filter.ParkedOnly() {
			statement = scanParkedSQL
		}
		return a.scan(ctx, tx, a.schema.logSQL(statement, s.Shard), s, from, to, &w)
	})
	if err != nil {
		return admin.Window{}, fmt.Errorf("list messages of shard %d of route %s: %w", s.Shard, s.Route, err)
	}
	return w, nil
}

func (a *Admin) scan(ctx context.Context, tx pgx.Tx, statement string, s admin.Scan, from, to int64, w *admin.Window) error {
	f := s.Filter
	rows, err := tx.Query(ctx, statement, s.Route, s.Shard, from, to, s.Look, s.Limit,
		statesOrNull(f.States), f.Topic, f.Key, f.Type, timeOrNull(f.Since), timeOrNull(f.Until))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		item, last, err := scanItem(rows, &w.Looked)
		if err != nil {
			return err
		}
		if last > 0 {
			w.Last = last
		}
		if item != nil {
			item.Route, item.Shard = s.Route, s.Shard
			w.Items = append(w.Items, *item)
		}
	}
	w.More = w.Looked >= s.Look && w.Last < to
	if len(w.Items) == s.Limit { // the rest of the window was not returned
		w.Last, w.More = w.Items[len(w.Items)-1].Seq, true
	}
	return rows.Err()
}

// scanItem reads one row; item is nil if the window has none that fits.
func scanItem(row pgx.Row, looked *int) (item *admin.Item, last int64, err error) {
	var (
		maxSeq, seq                    *int64
		id                             *[16]byte
		topic, key, typ, state, reason *string
		created, notBefore, expires    *time.Time
		due, changed                   *time.Time
		attempts                       *int
		replay                         *int64
		holds                          *bool
	)
	err = row.Scan(looked, &maxSeq, &seq, &id, &topic, &key, &typ, &created, &notBefore, &expires, &state, &attempts, &reason, &due, &changed, &holds, &replay)
	if err != nil || seq == nil {
		return nil, orZero(maxSeq), err
	}
	item = &admin.Item{
		ID: *id, Topic: *topic, Key: *key, Type: *typ, CreatedAt: *created, NotBefore: orZero(notBefore), Expires: orZero(expires),
		Standing: admin.Standing{
			State: outbox.State(*state), Attempts: *attempts, Error: *reason, DueAt: orZero(due), ChangedAt: orZero(changed),
			Holds: *holds, Replay: *replay,
		},
	}
	item.Seq = *seq
	return item, orZero(maxSeq), nil
}

// bounds narrows the numbers to look at: after from, up to to.
func (a *Admin) bounds(ctx context.Context, tx pgx.Tx, s admin.Scan) (from, to int64, err error) {
	from, to = s.After, s.UpTo
	if to == 0 {
		to = maxNumber
	}
	raise := func(statement string, into *int64) error {
		var n *int64
		rows, err := tx.Query(ctx, a.schema.sql(statement), s.Route, s.Shard)
		if err == nil {
			_, err = pgx.ForEachRow(rows, []any{&n}, func() error {
				if n != nil {
					*into = *n
				}
				return nil
			})
		}
		return err
	}
	switch f := &s.Filter; {
	case f.ParkedOnly():
		return from, to, nil
	case f.Only(outbox.StatePending):
		low := int64(0)
		if err := raise(waitingFromSQL, &low); err != nil {
			return 0, 0, err
		}
		from = max(from, low)
	case f.Only(outbox.StateSent, admin.Unknown):
		high := int64(0)
		if err := raise(positionSQL, &high); err != nil {
			return 0, 0, err
		}
		to = min(to, high)
	}
	// Only the first page of a shard has to look for its beginning.
	if !s.Filter.Since.IsZero() && s.After == 0 && s.UpTo == 0 {
		first, err := a.numberAt(ctx, tx, s.Shard, s.Filter.Since.Add(-clockSlack))
		if err != nil {
			return 0, 0, err
		}
		from = max(from, first-1)
	}
	return from, to, nil
}

// maxNumber is greater than any number, and leaves room for one more.
const maxNumber = 1 << 62

// clockSlack is by how much the numbers of the log may disagree with the times
// in it, when the server's clock was set back.
const clockSlack = time.Hour

// numberAt finds a number such that what was enqueued at or after a time has it
// or a greater one, by halving: numbers rise with time.
func (a *Admin) numberAt(ctx context.Context, tx pgx.Tx, shard int, at time.Time) (int64, error) {
	tails, err := Tails(ctx, tx, a.schema, []int{shard})
	if err != nil {
		return 0, err
	}
	statement := a.schema.logSQL(atNumberSQL, shard)
	low, high := int64(1), tails[shard]+1 // what is searched is in [low, high]
	for low < high {
		middle := low + (high-low)/2
		var seq int64
		var created time.Time
		found := false
		rows, err := tx.Query(ctx, statement, middle)
		if err == nil {
			_, err = pgx.ForEachRow(rows, []any{&seq, &created}, func() error { found = true; return nil })
		}
		switch {
		case err != nil:
			return 0, err
		case found && seq < high && created.Before(at):
			low = seq + 1
		default:
			high = middle
		}
	}
	return low, nil
}

func statesOrNull(states []outbox.State) []string {
	var all []string
	for _, s := range states {
		all = append(all, string(s))
	}
	return all
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
