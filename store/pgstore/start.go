package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

const (
	startNowSQL = `UPDATE {s}.cursor SET pos = $4, started = $4, topics_from = $4, unsettled = $5::text::int8multirange,
			seen = pg_snapshot_xmax(pg_current_snapshot())
		WHERE route = $1 AND shard = $2 AND token = $3 RETURNING ctid::text`

	// Where nothing is left of what was enqueued, there is nothing to look for.
	startLowSQL = `UPDATE {s}.cursor AS c SET pos = r.low, started = r.low, topics_from = r.low FROM {s}.retention AS r
		WHERE c.route = $1 AND c.shard = $2 AND c.token = $3 AND r.shard = $2 AND r.low > 0 AND r.low <= (SELECT last_value FROM {seq})
		RETURNING c.ctid::text, c.pos`

	// missingSQL lists the numbers up to $1 that may yet appear, as ranges. The
	// route that has read furthest knows of those up to its position, so that the
	// log is looked through from there on only: among what that one has without an
	// outcome they are those that have no row.
	missingSQL = `WITH other AS MATERIALIZED (
			SELECT route, least(pos, $1) AS pos, unsettled FROM {s}.cursor WHERE shard = $2 AND route <> $3 ORDER BY pos DESC LIMIT 1),
		waiting AS MATERIALIZED (
			SELECT range_agg(numbers * int8range(NULL, $1, '(]')) AS numbers FROM (
				SELECT unnest(unsettled) FROM other UNION ALL
				SELECT unnest(numbers) FROM {s}.gap WHERE shard = $2 AND route = (SELECT route FROM other)) AS w (numbers)),
		there AS MATERIALIZED (
			SELECT range_agg(int8range(l.seq, l.seq, '[]')) AS numbers FROM waiting AS w CROSS JOIN LATERAL unnest(w.numbers) AS r
			CROSS JOIN LATERAL (SELECT seq FROM {log} WHERE seq >= lower(r) AND seq < upper(r) ORDER BY seq) AS l),
		known AS (SELECT greatest(coalesce((SELECT pos FROM other), 0),
			coalesce((SELECT low FROM {s}.retention WHERE shard = $2 AND low <= $1), 0)) AS upto)
		SELECT lower(r), upper(r) - 1 FROM waiting AS w CROSS JOIN there AS t
			CROSS JOIN LATERAL unnest(w.numbers - coalesce(t.numbers, '{}')) AS r
		UNION ALL SELECT before + 1, seq - 1 FROM (
			SELECT seq, lag(seq, 1, upto) OVER (ORDER BY seq) AS before FROM known
			CROSS JOIN LATERAL (SELECT seq FROM {log} WHERE seq > upto AND seq <= $1 UNION ALL SELECT $1 + 1) AS numbers) AS steps
		WHERE seq > before + 1`
)

// start puts a new cursor where its route begins, or goes on.
func (c *Cursor) start(ctx context.Context, tx pgx.Tx, stood *Stood) error {
	if goesOn, err := c.goOn(ctx, tx, stood); err != nil || goesOn {
		return err
	}
	begin := c.startLow
	if c.claim.Start == relay.StartNow {
		begin = c.startNow
	}
	err := begin(ctx, tx)
	c.stood.started, c.stood.topicsFrom = c.Pos, c.Pos
	return err
}

func (c *Cursor) startLow(ctx context.Context, tx pgx.Tx) error {
	err := tx.QueryRow(ctx, c.schema.logSQL(startLowSQL, c.claim.Shard), c.claim.Route, c.claim.Shard, c.token).Scan(&c.ctid, &c.Pos)
	if errors.Is(err, pgx.ErrNoRows) { // nothing was deleted yet
		return nil
	}
	return err
}

// startNow puts a new cursor behind everything that is committed by now. What
// is numbered but not committed yet stays unsettled: it commits later.
func (c *Cursor) startNow(ctx context.Context, tx pgx.Tx) error {
	tails, err := Tails(ctx, tx, c.schema, []int{c.claim.Shard})
	if err != nil {
		return err
	}
	c.Pos = tails[c.claim.Shard]
	rows, err := tx.Query(ctx, c.schema.logSQL(missingSQL, c.claim.Shard), c.Pos, c.claim.Shard, c.claim.Route)
	if err != nil {
		return err
	}
	var first, last int64
	if _, err := pgx.ForEachRow(rows, []any{&first, &last}, func() error { c.Unsettled.Add(first, last); return nil }); err != nil {
		return err
	}
	return tx.QueryRow(ctx, c.schema.sql(startNowSQL), c.claim.Route, c.claim.Shard, c.token, c.Pos, formatMultirange(c.Unsettled)).Scan(&c.ctid)
}
