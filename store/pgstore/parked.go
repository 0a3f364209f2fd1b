package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// maxPromoted is how many blocked messages of one key are due at a time.
const maxPromoted = 500

// maxErrorText bounds the error kept with a message, in bytes.
const maxErrorText = 4096

// goneText is the error of a message that cannot be read any more.
const goneText = "the message is gone from the log, where it waited for its turn"

const (
	// Of a message that was in hand and that somebody has deleted from the log,
	// what is known is kept. Nothing is left to wait for.
	parkFromLogSQL = `INSERT INTO {s}.parked AS p (route, shard, seq, state, closes, due_at, attempts, error, key, id, topic,
			created_at, not_before, expires, type, content_type, headers, payload)
		SELECT $1, $2, o.seq, CASE WHEN l.seq IS NULL THEN 'failed' ELSE o.state END, o.closes,
			CASE WHEN l.seq IS NULL THEN CASE WHEN o.closes THEN '-infinity'::timestamptz END
				WHEN o.state IN ('retrying', 'pending') THEN clock_timestamp() + o.delay * interval '1 microsecond'
				WHEN o.state = 'scheduled' THEN coalesce(l.not_before, '-infinity')
				WHEN o.state = 'blocked' AND NOT o.closes THEN '-infinity' END,
			o.attempts, CASE WHEN l.seq IS NULL THEN $10 ELSE o.error END, o.key, o.id, o.topic,
			coalesce(l.created_at, clock_timestamp()), l.not_before, l.expires, coalesce(l.type, ''), coalesce(l.content_type, ''),
			CASE WHEN o.state <> 'blocked' THEN l.headers END, CASE WHEN o.state <> 'blocked' THEN l.payload END
		FROM unnest($3::bigint[], $4::text[], $5::boolean[], $6::bigint[], $7::integer[], $8::text[], $9::boolean[], $11::text[], $12::text[]::uuid[], $13::text[])
			WITH ORDINALITY AS o (seq, state, closes, delay, attempts, error, heard, key, id, topic, ord)
		LEFT JOIN LATERAL (SELECT * FROM {log} WHERE seq = o.seq OFFSET 0) AS l ON true
		ORDER BY o.ord
		ON CONFLICT (route, shard, seq) DO UPDATE SET state = excluded.state, closes = excluded.closes, due_at = excluded.due_at,
			attempts = excluded.attempts, error = excluded.error, changed_at = clock_timestamp(), headers = excluded.headers, payload = excluded.payload
		RETURNING xmax <> 0`

	// A message that came due and found its key closed takes its place now; one
	// that was in the key's queue already keeps its place. What an operator has
	// changed while it was in hand stays so: a discarded one becomes due once
	// more if the lease counts it, and of one that was handed out only to be heard
	// of (heard) the rest is the operator's.
	parkAgainSQL = `WITH o AS MATERIALIZED (
			SELECT u.*, CASE WHEN u.state = 'blocked' THEN nextval($10::text::regclass) END AS place
			FROM unnest($3::bigint[], $4::text[], $5::boolean[], $6::bigint[], $7::integer[], $8::text[], $9::boolean[])
				WITH ORDINALITY AS u (seq, state, closes, delay, attempts, error, heard, ord)
			ORDER BY u.ord)
		UPDATE {s}.parked AS p SET
			state = CASE WHEN o.heard OR p.state = 'discarded' THEN p.state ELSE o.state END,
			closes = o.closes,
			due_at = CASE
				WHEN o.heard THEN CASE WHEN p.state NOT IN ('failed', 'discarded') THEN p.due_at END
				WHEN p.state = 'discarded' THEN CASE WHEN o.closes THEN '-infinity'::timestamptz END
				WHEN o.state IN ('retrying', 'pending') THEN clock_timestamp() + o.delay * interval '1 microsecond'
				WHEN o.state = 'scheduled' THEN coalesce(p.not_before, '-infinity')
				WHEN o.state = 'blocked' AND NOT o.closes THEN '-infinity' END,
			attempts = CASE WHEN o.heard THEN p.attempts ELSE o.attempts END,
			error = CASE WHEN o.heard OR o.state = 'blocked' THEN p.error ELSE o.error END,
			arrival = CASE WHEN p.state = 'scheduled' AND o.state = 'blocked' THEN o.place ELSE p.arrival END,
			changed_at = CASE WHEN o.heard THEN p.changed_at ELSE clock_timestamp() END,
			headers = CASE WHEN p.payload IS NULL THEN l.headers ELSE p.headers END,
			payload = coalesce(p.payload, l.payload)
		FROM o LEFT JOIN LATERAL (SELECT headers, payload FROM {log} WHERE seq = o.seq AND o.state <> 'blocked' OFFSET 0) AS l ON true
		WHERE p.route = $1 AND p.shard = $2 AND p.seq = o.seq`

	unparkSQL = `DELETE FROM {s}.parked WHERE route = $1 AND shard = $2 AND seq = ANY ($3::bigint[])`

	// Whether something of a key that is not blocked stands in its way.
	closingSQL = `CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
				SELECT FROM {s}.parked AS h WHERE h.route = $1 AND h.shard = $2 AND h.key = k.key AND h.closes AND h.state <> 'blocked'
					AND (h.state IN ('retrying', 'pending') OR h.state = 'failed' AND h.due_at IS NULL) LIMIT 1) AS one) AS closing`

	// Blocked messages that were due wait again when an earlier one is in their
	// way. Those that are due are the first ones, or nearly.
	demoteSQL = `UPDATE {s}.parked SET due_at = NULL, changed_at = clock_timestamp() WHERE route = $1 AND shard = $2 AND due_at IS NOT NULL AND seq = ANY (ARRAY(
			SELECT b.seq FROM unnest($3::text[]) AS k (key) ` + closingSQL + `
			CROSS JOIN LATERAL (SELECT seq FROM {s}.parked
				WHERE route = $1 AND shard = $2 AND key = k.key AND state = 'blocked' AND closing.n > 0 ORDER BY arrival LIMIT $4) AS b))`

	// Of each key that nothing closes any more, the first blocked messages
	// become due at once.
	promoteSQL = `UPDATE {s}.parked SET due_at = '-infinity', changed_at = clock_timestamp() WHERE route = $1 AND shard = $2 AND due_at IS NULL AND seq = ANY (ARRAY(
			SELECT b.seq FROM unnest($3::text[]) AS k (key) ` + closingSQL + `
			CROSS JOIN LATERAL (SELECT seq FROM {s}.parked
				WHERE route = $1 AND shard = $2 AND key = k.key AND state = 'blocked' AND closing.n = 0 ORDER BY arrival LIMIT $4) AS b))`

	// statement_timestamp() does not change within a statement, so the index can
	// use it; each row of the log is looked up by its number. What an operator has
	// settled comes without its content.
	//
	// The page ends after the message with which it has $5 bytes. Telling the
	// sizes does not read payloads that lie apart from their row.
	dueSQL = `SELECT seq, arrival, state, closes, again, replay, attempts, gone, expired, id, topic, key, type, content_type,
			headers::text, payload, created_at, not_before, expires
		FROM (SELECT p.seq, p.state, p.closes, p.again, p.replay, p.attempts, p.content AND coalesce(p.payload, l.payload) IS NULL AS gone,
				coalesce(p.expires <= statement_timestamp(), false) AS expired, p.id, p.topic, p.key, p.type, p.content_type,
				coalesce(p.headers, l.headers) AS headers, coalesce(p.payload, l.payload) AS payload,
				least(p.created_at, statement_timestamp()) AS created_at, p.not_before, p.expires, p.due_at, p.arrival,
				sum(octet_length(coalesce(p.payload, l.payload))) OVER (ORDER BY p.due_at, p.arrival ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes
			FROM (SELECT seq, state, closes, due_at <= $6 AND changed_at <= $6 AS again, replay, attempts, arrival, due_at, id, topic, key, type, content_type, created_at, not_before, expires,
					content, CASE WHEN content THEN headers END AS headers, CASE WHEN content THEN payload END AS payload
				FROM {s}.parked CROSS JOIN LATERAL (SELECT state NOT IN ('failed', 'discarded') AS content) AS c
				WHERE route = $1 AND shard = $2 AND due_at >= $7::timestamptz AND due_at <= statement_timestamp() AND seq <> ALL ($3::bigint[])
				ORDER BY due_at, arrival LIMIT $4) AS p
			LEFT JOIN LATERAL (SELECT headers, payload FROM {log} WHERE p.content AND p.payload IS NULL AND seq = p.seq OFFSET 0) AS l ON true) AS page
		WHERE coalesce(bytes, 0) < $5
		ORDER BY due_at, arrival`

	nextDueSQL = `SELECT extract(epoch FROM due_at - statement_timestamp())::float8 FROM {s}.parked
		WHERE route = $1 AND shard = $2 AND due_at > statement_timestamp() AND due_at < 'infinity' ORDER BY due_at LIMIT 1`
)

func (c *Cursor) queueParking(batch *pgx.Batch, p *parking) {
	queue := func(sql string, args ...any) *pgx.QueuedQuery {
		return batch.Queue(c.schema.logSQL(sql, c.claim.Shard), append([]any{c.claim.Route, c.claim.Shard}, args...)...)
	}
	if r := &p.fromLog; r.seqs != nil {
		queue(parkFromLogSQL, r.seqs, r.states, r.closes, r.delays, r.attempts, r.errors, r.heard, goneText, r.keys, r.ids, r.topics).
			Query(func(rows pgx.Rows) error {
				parked, err := pgx.CollectRows(rows, pgx.RowTo[bool])
				p.twice = slices.Contains(parked, true)
				return err
			})
	}
	if r := &p.fromParked; r.seqs != nil {
		queue(parkAgainSQL, r.seqs, r.states, r.closes, r.delays, r.attempts, r.errors, r.heard, c.schema.Table("parked_arrival_seq"))
	}
	if p.gone != nil {
		queue(unparkSQL, p.gone)
	}
	if p.keys != nil {
		c.schema.queueOrder(batch, c.claim.Route, c.claim.Shard, p.keys)
	}
}

// queueOrder decides, for each key, which of its blocked messages are due.
func (s Schema) queueOrder(batch *pgx.Batch, route string, shard int, keys []string) {
	batch.Queue(s.sql(demoteSQL), route, shard, keys, 2*maxPromoted)
	batch.Queue(s.sql(promoteSQL), route, shard, keys, maxPromoted)
}

// Due returns parked messages whose time has come, at most max and no more once
// they have relay.PageBytes, in order of arrival within a key, without those in
// except; with timed only those that waited for a time. next is how long until
// another comes due, by the server's clock; negative if none is scheduled.
func (c *Cursor) Due(ctx context.Context, max int, timed bool, except []int64) (due []relay.Delivery, next time.Duration, err error) {
	from := pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	if timed {
		from = pgtype.Timestamptz{Time: time.Unix(0, 0), Valid: true}
	}
	if except == nil {
		except = []int64{}
	}
	var batch pgx.Batch
	batch.Queue(c.schema.logSQL(dueSQL, c.claim.Shard), c.claim.Route, c.claim.Shard, except, max, relay.PageBytes, c.taken, from).Query(func(rows pgx.Rows) error {
		due, err = pgx.CollectRows(rows, scanParked)
		return err
	})
	next = -1
	batch.Queue(c.schema.sql(nextDueSQL), c.claim.Route, c.claim.Shard).Query(func(rows pgx.Rows) error {
		var seconds float64
		_, err := pgx.ForEachRow(rows, []any{&seconds}, func() error {
			next = time.Duration(min(seconds, 1e6) * float64(time.Second))
			return nil
		})
		return err
	})
	err = c.db.SendBatch(ctx, &batch).Close()
	if err != nil {
		return nil, 0, fmt.Errorf("read due messages of shard %d of route %s: %w", c.claim.Shard, c.claim.Route, err)
	}
	return due, next, nil
}

func scanParked(row pgx.CollectableRow) (relay.Delivery, error) {
	d := relay.Delivery{Parked: true, State: outbox.StatePending}
	m := &d.Message
	var state outbox.State
	var closes, gone, expired bool
	var n Nullables
	err := row.Scan(&d.Seq, &d.Arrival, &state, &closes, &d.Again, &m.Replay, &d.Attempts, &gone, &expired, &m.ID, &m.Topic, &m.Key, &m.Type, &m.ContentType,
		&n.Headers, &m.Payload, &m.CreatedAt, &n.NotBefore, &n.Expires)
	if err != nil {
		return d, err
	}
	n.Into(m)
	switch {
	case closes:
		d.Place = relay.PlaceKept
	case state != outbox.StateScheduled:
		d.Place = relay.PlaceNone
	}
	switch {
	case state == outbox.StateDiscarded || state == outbox.StateFailed:
		d.State, d.Released = state, state == outbox.StateFailed
	case gone:
		d.State, d.Error = outbox.StateFailed, goneText
	case expired:
		d.State = outbox.StateExpired
	}
	return d, nil
}

// errorText makes a text that PostgreSQL takes out of any error.
func errorText(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) > maxErrorText {
		s = strings.ToValidUTF8(s[:maxErrorText], "") + "…"
	}
	return s
}
