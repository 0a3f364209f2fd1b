package pgstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// maxPromoted is how many blocked messages of one key are out at a time.
const maxPromoted = 500

// maxErrorText bounds the error kept with a message, in bytes.
const maxErrorText = 4096

const (
	parkFromLogSQL = `INSERT INTO {s}.parked AS p (route, shard, seq, state, due_at, attempts, error, key, id, topic,
			created_at, not_before, expires, type, content_type, headers, payload)
		SELECT $1, $2, o.seq, o.state,
			CASE WHEN o.state IN ('retrying', 'pending') THEN clock_timestamp() + o.delay * interval '1 microsecond' WHEN o.state = 'scheduled' THEN l.not_before END,
			o.attempts, o.error, l.key, l.id, l.topic, l.created_at, l.not_before, l.expires, l.type, l.content_type,
			CASE WHEN o.state <> 'blocked' THEN l.headers END, CASE WHEN o.state <> 'blocked' THEN l.payload END
		FROM unnest($3::bigint[], $4::text[], $5::bigint[], $6::integer[], $7::text[]) WITH ORDINALITY AS o (seq, state, delay, attempts, error, ord)
		CROSS JOIN LATERAL (SELECT * FROM {log} WHERE seq = o.seq OFFSET 0) AS l
		ORDER BY o.ord
		ON CONFLICT (route, shard, seq) DO UPDATE SET state = excluded.state, due_at = excluded.due_at, attempts = excluded.attempts,
			error = excluded.error, changed_at = clock_timestamp(), headers = excluded.headers, payload = excluded.payload`

	// A message that came due and found its key closed takes its place now; one
	// that was in the key's queue already keeps its place.
	parkAgainSQL = `WITH o AS MATERIALIZED (
			SELECT u.*, CASE WHEN u.state = 'blocked' THEN nextval($8::text::regclass) END AS place
			FROM unnest($3::bigint[], $4::text[], $5::bigint[], $6::integer[], $7::text[]) WITH ORDINALITY AS u (seq, state, delay, attempts, error, ord)
			ORDER BY u.ord)
		UPDATE {s}.parked AS p SET state = o.state,
			due_at = CASE WHEN o.state IN ('retrying', 'pending') THEN clock_timestamp() + o.delay * interval '1 microsecond' WHEN o.state = 'scheduled' THEN p.not_before END,
			attempts = o.attempts,
			error = CASE WHEN o.state = 'blocked' THEN p.error ELSE o.error END,
			arrival = CASE WHEN p.state = 'scheduled' AND o.state = 'blocked' THEN o.place ELSE p.arrival END,
			changed_at = clock_timestamp(),
			headers = CASE WHEN p.payload IS NULL THEN l.headers ELSE p.headers END,
			payload = coalesce(p.payload, l.payload)
		FROM o LEFT JOIN LATERAL (SELECT headers, payload FROM {log} WHERE seq = o.seq AND o.state <> 'blocked' OFFSET 0) AS l ON true
		WHERE p.route = $1 AND p.shard = $2 AND p.seq = o.seq`

	unparkSQL = `DELETE FROM {s}.parked WHERE route = $1 AND shard = $2 AND seq = ANY ($3::bigint[])`

	// Blocked messages that were due wait again when an earlier one is in their
	// way.
	demoteSQL = `UPDATE {s}.parked AS p SET due_at = NULL, changed_at = clock_timestamp()
		FROM unnest($3::text[]) AS k (key)
		WHERE p.route = $1 AND p.shard = $2 AND p.key = k.key AND p.state = 'blocked' AND p.due_at IS NOT NULL
			AND EXISTS (SELECT FROM {s}.parked AS h WHERE h.route = $1 AND h.shard = $2 AND h.key = k.key
				AND (h.state IN ('retrying', 'pending') OR $4 AND h.state = 'failed'))`

	// Of each key that nothing closes any more, the first blocked messages
	// become due at once.
	promoteSQL = `UPDATE {s}.parked AS p SET due_at = '-infinity', changed_at = clock_timestamp()
		FROM unnest($3::text[]) AS k (key)
		CROSS JOIN LATERAL (
			SELECT b.seq FROM {s}.parked AS b
			WHERE b.route = $1 AND b.shard = $2 AND b.key = k.key AND b.state = 'blocked'
			ORDER BY b.arrival LIMIT $5) AS next
		WHERE p.route = $1 AND p.shard = $2 AND p.seq = next.seq AND p.due_at IS NULL
			AND NOT EXISTS (SELECT FROM {s}.parked AS h WHERE h.route = $1 AND h.shard = $2 AND h.key = k.key
				AND (h.state IN ('retrying', 'pending') OR $4 AND h.state = 'failed'))`

	// statement_timestamp() does not change within a statement, so the index can
	// use it; each row of the log is looked up by its number. Blocked messages
	// that the log no longer has are passed over before the limit counts.
	dueSQL = `SELECT p.seq, p.attempts, coalesce(p.expires <= statement_timestamp(), false), p.id, p.topic, p.key, p.type, p.content_type,
			coalesce(p.headers, l.headers)::text, coalesce(p.payload, l.payload), least(p.created_at, statement_timestamp()), p.not_before, p.expires
		FROM (SELECT * FROM {s}.parked WHERE route = $1 AND shard = $2 AND due_at <= statement_timestamp() AND seq <> ALL ($3::bigint[])
				AND (payload IS NOT NULL OR EXISTS (SELECT FROM {log} AS e WHERE e.seq = parked.seq))
			ORDER BY due_at, arrival LIMIT $4) AS p
		LEFT JOIN LATERAL (SELECT seq, headers, payload FROM {log} WHERE p.payload IS NULL AND seq = p.seq OFFSET 0) AS l ON true
		ORDER BY p.due_at, p.arrival`

	nextDueSQL = `SELECT extract(epoch FROM due_at - statement_timestamp())::float8 FROM {s}.parked
		WHERE route = $1 AND shard = $2 AND due_at > statement_timestamp() AND due_at < 'infinity' ORDER BY due_at LIMIT 1`
)

func (c *Cursor) queueParking(batch *pgx.Batch, p *parking) {
	queue := func(sql string, args ...any) {
		batch.Queue(c.schema.logSQL(sql, c.claim.Shard), append([]any{c.claim.Route, c.claim.Shard}, args...)...)
	}
	if r := &p.fromLog; r.seqs != nil {
		queue(parkFromLogSQL, r.seqs, r.states, r.delays, r.attempts, r.errors)
	}
	if r := &p.fromParked; r.seqs != nil {
		queue(parkAgainSQL, r.seqs, r.states, r.delays, r.attempts, r.errors, c.schema.Table("parked_arrival_seq"))
	}
	if p.gone != nil {
		queue(unparkSQL, p.gone)
	}
	if p.keys != nil {
		c.queueOrder(batch, p.keys)
	}
}

// queueOrder decides, for each key, which of its blocked messages are due.
func (c *Cursor) queueOrder(batch *pgx.Batch, keys []string) {
	batch.Queue(c.schema.sql(demoteSQL), c.claim.Route, c.claim.Shard, keys, c.claim.Hold)
	batch.Queue(c.schema.sql(promoteSQL), c.claim.Route, c.claim.Shard, keys, c.claim.Hold, maxPromoted)
}

// Due returns parked messages whose time has come, at most max, in order of
// arrival within a key, without those in except. next is how long until another
// comes due, by the server's clock; negative if none is scheduled.
func (c *Cursor) Due(ctx context.Context, max int, except []int64) (due []relay.Delivery, next time.Duration, err error) {
	if except == nil {
		except = []int64{}
	}
	var batch pgx.Batch
	batch.Queue(c.schema.logSQL(dueSQL, c.claim.Shard), c.claim.Route, c.claim.Shard, except, max).Query(func(rows pgx.Rows) error {
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
	var expired bool
	var n Nullables
	err := row.Scan(&d.Seq, &d.Attempts, &expired, &d.Message.ID, &d.Message.Topic, &d.Message.Key, &d.Message.Type, &d.Message.ContentType,
		&n.Headers, &d.Message.Payload, &d.Message.CreatedAt, &n.NotBefore, &n.Expires)
	if err != nil {
		return d, err
	}
	if expired {
		d.State = outbox.StateExpired
	}
	n.Into(&d.Message)
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
