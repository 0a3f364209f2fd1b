package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/sweep"
	"github.com/postrider/postrider/relay"
)

const (
	// One at a time cleans a shard, whoever else tries, and nobody while a replay
	// begins, for which the messages stay. The lock goes with the transaction, so
	// a pooler between does no harm.
	cleanLockKey     = `hashtextextended('postrider clean ' || $1::text, $2)`
	cleanLockSQL     = `SELECT pg_try_advisory_xact_lock(` + cleanLockKey + `)`
	keepUncleanedSQL = `SELECT pg_advisory_xact_lock_shared(` + cleanLockKey + `)`

	// cleanedSQL is how far the shard was cleaned. There is no answer while numbers
	// count as done that the sequence has not given out: it was set back, and what
	// has such a number by now must be looked at first.
	cleanedSQL = `SELECT coalesce(r.low, 0), coalesce(r.done, 0) FROM (SELECT max(pos) AS pos FROM {s}.cursor WHERE shard = $1) AS c
		LEFT JOIN {s}.retention AS r ON r.shard = $1
		WHERE greatest(c.pos, r.done) <= (SELECT last_value FROM {seq})`

	// What was cleaned were other messages than have these numbers now.
	forgetCleanedSQL = `UPDATE {s}.retention SET low = 0, done = 0, changed_at = clock_timestamp() WHERE shard = $1 AND done > 0`

	setCleanedSQL = `INSERT INTO {s}.retention AS r (shard, low, done) VALUES ($1, $2, $3)
		ON CONFLICT (shard) DO UPDATE SET low = excluded.low, done = excluded.done, changed_at = clock_timestamp()`

	// cleanLogSQL looks at $4 rows after $2 and up to $3 and deletes those that
	// are older than $5 microseconds and that no route needs: every route has
	// read it (at), it has an outcome on each (waiting), and none reads it once
	// more when its turn comes (followers, replays). All of it is seen in one
	// snapshot: a row that no route needs then is needed by none later, since no
	// replay begins meanwhile.
	//
	// Nothing is deleted while there is no route, or while a relay at work has
	// one that has not begun to read.
	//
	// The page ends at the last row that is old enough, so that what is too young
	// is looked at again; if it goes once more over what was left behind ($6), it
	// ends where it has looked. The lowest number up to there that may still be
	// needed, of a row or of one that may yet appear, is told.
	//
	// It ends before a row that was given an old number again (unread): that number
	// counts as done, and the row was never read. A row whose topic no route takes
	// (strays) stays too, until one does.
	cleanLogSQL = `WITH cursors AS MATERIALIZED (
			SELECT route, topics, pos, unsettled, seen, checked, checked_xid, restored FROM {s}.cursor WHERE shard = $1),
		at AS MATERIALIZED (
			SELECT least(min(pos), $3) AS upto FROM cursors
			HAVING count(*) > 0 AND NOT EXISTS (SELECT FROM {s}.member AS m CROSS JOIN unnest(m.routes) AS r (route)
				WHERE m.expires > clock_timestamp() AND r.route NOT IN (SELECT route FROM cursors))),
		page AS MATERIALIZED (
			SELECT ctid AS row, seq, created_at <= statement_timestamp() - $5 * interval '1 microsecond' AS old,
				topic, EXISTS (SELECT FROM cursors AS c WHERE ` + reusedRule + ` AND NOT c.unsettled @> l.seq
					AND NOT EXISTS (SELECT FROM {s}.gap AS g WHERE g.route = c.route AND g.shard = $1 AND g.numbers @> l.seq)) AS unread
			FROM {log} AS l WHERE seq > $2 AND seq <= (SELECT upto FROM at) ORDER BY seq LIMIT $4),
		cut AS MATERIALIZED (SELECT min(seq) AS seq FROM page WHERE unread),
		last AS MATERIALIZED (SELECT CASE WHEN $6 AND count(*) < $4 AND (SELECT seq FROM cut) IS NULL THEN (SELECT upto FROM at)
				ELSE max(seq) FILTER (WHERE old OR $6) END AS seq, count(*) AS rows
			FROM page WHERE seq < coalesce((SELECT seq FROM cut), 9223372036854775807)),
		strays AS MATERIALIZED (SELECT topic FROM (SELECT DISTINCT topic FROM page) AS t
			WHERE NOT EXISTS (SELECT FROM cursors AS c WHERE {s}.takes_topic(c.topics, t.topic))),
		waiting AS MATERIALIZED (SELECT range_agg(w.numbers) AS numbers, min(greatest(lower(w.numbers), $2 + 1)) AS first FROM (
				SELECT unnest(unsettled) FROM cursors UNION ALL
				SELECT unnest(numbers) FROM {s}.gap WHERE shard = $1) AS w (numbers)
			WHERE w.numbers && int8range($2, (SELECT seq FROM last), '(]')),
		followers AS MATERIALIZED (SELECT f.seq FROM cursors AS c CROSS JOIN LATERAL (
				SELECT seq FROM {s}.parked WHERE route = c.route AND shard = $1 AND seq > $2 AND seq <= (SELECT seq FROM last)
					AND payload IS NULL AND state NOT IN ('failed', 'expired', 'discarded') OFFSET 0) AS f),
		free AS MATERIALIZED (
			SELECT row, seq FROM page WHERE old AND seq <= (SELECT seq FROM last) AND topic NOT IN (SELECT topic FROM strays) AND NOT coalesce((SELECT numbers FROM waiting) @> seq, false) AND seq NOT IN (SELECT seq FROM followers)),
		gone AS (DELETE FROM {log} WHERE ctid = ANY (ARRAY(SELECT row FROM free)) RETURNING 1)
		SELECT last.rows, coalesce(last.seq, 0), (SELECT count(*) FROM gone), coalesce(least((SELECT first FROM waiting),
			(SELECT min(seq) FROM page WHERE seq <= last.seq AND seq NOT IN (SELECT seq FROM free))), 0) FROM last`
)

const (
	// cleanPage is how many rows a statement looks at to begin with. The number
	// then follows the time it takes, between the two bounds: large payloads take
	// long to delete.
	cleanPage, minCleanPage, maxCleanPage = 100, 5, 10_000
	// cleanPageTime is about what one page is to take: a stop waits for it.
	cleanPageTime = 100 * time.Millisecond
)

// Cleaner deletes messages that no route needs any more. Several may work on
// the same tables: each page is one's. Not safe for concurrent use.
type Cleaner struct {
	db     DB
	schema Schema
	shards []cleanedShard
	parked sweep.Lines[parkedLine]
}

// cleanedShard is what a Cleaner keeps in mind of a shard.
type cleanedShard struct {
	page  int
	sweep sweep.Sweep
}

// NewCleaner returns a Cleaner for that many shards.
func NewCleaner(db DB, schema Schema, shards int) *Cleaner {
	c := &Cleaner{db: db, schema: schema, shards: make([]cleanedShard, shards)}
	for i := range c.shards {
		c.shards[i].page = cleanPage
	}
	return c
}

// Clean deletes some of what the retention lets go, as relay.Cleaner says: a
// page of each shard's log, and one of parked messages.
func (c *Cleaner) Clean(ctx context.Context, keep relay.Retention) (relay.Cleaned, error) {
	var total relay.Cleaned
	for shard := range c.shards {
		if keep.Sent < 0 {
			break
		}
		n, more, err := c.cleanLog(ctx, shard, keep.Sent)
		if err != nil {
			return total, fmt.Errorf("delete old messages of shard %d: %w", shard, err)
		}
		total.Log += n
		total.More = total.More || more
	}
	n, more, err := c.cleanParked(ctx, keep)
	if err != nil {
		return total, fmt.Errorf("delete old parked messages: %w", err)
	}
	total.Parked = n
	total.More = total.More || more
	return total, nil
}

// cleanLog deletes one page of a shard's log, in a transaction of its own.
func (c *Cleaner) cleanLog(ctx context.Context, shard int, sent time.Duration) (deleted int64, more bool, err error) {
	s := &c.shards[shard]
	begun := time.Now()
	err = pgx.BeginTxFunc(ctx, c.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		var mine bool
		if err := tx.QueryRow(ctx, cleanLockSQL, c.schema.Name(), shard).Scan(&mine); err != nil || !mine {
			return err
		}
		var low, done int64
		if err := tx.QueryRow(ctx, c.schema.logSQL(cleanedSQL, shard), shard).Scan(&low, &done); errors.Is(err, pgx.ErrNoRows) {
			_, err := tx.Exec(ctx, c.schema.sql(forgetCleanedSQL), shard)
			return err
		} else if err != nil {
			return err
		}
		from, upto := done, int64(maxNumber)
		sweeping := s.sweep.GoesOn() || low < done && s.sweep.Begin(low)
		if sweeping {
			from, upto = s.sweep.At(), done
		}
		var rows int
		var last, first int64
		err := tx.QueryRow(ctx, c.schema.logSQL(cleanLogSQL, shard), shard, from, upto, s.page, sent.Microseconds(), sweeping).Scan(&rows, &last, &deleted, &first)
		if err != nil {
			return err
		}
		full := rows == s.page
		newLow, newDone := low, done
		switch {
		case sweeping:
			newLow = max(low, s.sweep.Step(last, first, full))
			more = true // the sweep's next page, or what is new
		case last > done:
			more = full
			if low == done { // nothing was left behind before
				newLow = last
				if first > 0 {
					newLow = first - 1
				}
			}
			newDone = last
		}
		if newLow == low && newDone == done {
			return nil
		}
		_, err = tx.Exec(ctx, c.schema.sql(setCleanedSQL), shard, newLow, newDone)
		return err
	})
	if err != nil {
		s.sweep.Stop()
		s.page = max(s.page/2, minCleanPage) // it may have taken too long
		return 0, false, err
	}
	s.adapt(time.Since(begun))
	return deleted, more, nil
}

// adapt has the next page take about as long as one should.
func (s *cleanedShard) adapt(took time.Duration) {
	switch {
	case took > 2*cleanPageTime:
		s.page = max(s.page/2, minCleanPage)
	case took < cleanPageTime/2:
		s.page = min(s.page*2, maxCleanPage)
	}
}
