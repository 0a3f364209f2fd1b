package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

const (
	cleanRoutesSQL = `SELECT DISTINCT route FROM {s}.cursor`

	// cleanParkedSQL looks at $5 parked messages of a state, after number $4, and
	// deletes those that have been so for $6 microseconds. One that is still in
	// the log stays, since without its row it would count as sent; so does one
	// that a relay has to hear of, or that holds its key. A row that is changed
	// meanwhile is left alone.
	cleanParkedSQL = `WITH page AS MATERIALIZED (
			SELECT ctid AS row, seq, NOT closes AND due_at IS NULL AND changed_at <= statement_timestamp() - $6 * interval '1 microsecond' AS old
			FROM {s}.parked WHERE route = $1 AND state = $2 AND shard = $3 AND seq > $4 ORDER BY seq LIMIT $5),
		gone AS (DELETE FROM {s}.parked WHERE ctid = ANY (ARRAY(
				SELECT row FROM page WHERE old AND NOT EXISTS (SELECT FROM {log} AS l WHERE l.seq = page.seq OFFSET 0)))
			AND state = $2 AND NOT closes AND due_at IS NULL RETURNING 1)
		SELECT count(*), coalesce(max(seq), 0), (SELECT count(*) FROM gone) FROM page`
)

// parkedLine is the messages of one state on one shard of one route.
type parkedLine struct {
	route string
	shard int
	state outbox.State
}

// cleanParked deletes one page of parked messages.
func (c *Cleaner) cleanParked(ctx context.Context, keep relay.Retention) (deleted int64, more bool, err error) {
	line, after, ok, err := c.parked.Next(func() ([]parkedLine, error) { return c.parkedLines(ctx, keep) })
	if err != nil || !ok {
		return 0, false, err
	}
	var rows int
	var last int64
	err = c.db.QueryRow(ctx, c.schema.logSQL(cleanParkedSQL, line.shard), line.route, line.state, line.shard, after, cleanPage, keep.Of(line.state).Microseconds()).
		Scan(&rows, &last, &deleted)
	if err != nil {
		c.parked.Stop()
		return 0, false, err
	}
	return deleted, c.parked.Step(last, rows == cleanPage), nil
}

func (c *Cleaner) parkedLines(ctx context.Context, keep relay.Retention) (lines []parkedLine, err error) {
	rows, err := c.db.Query(ctx, c.schema.sql(cleanRoutesSQL))
	if err != nil {
		return nil, err
	}
	routes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, route := range routes {
		for shard := range c.shards {
			for _, state := range keep.Ends() {
				lines = append(lines, parkedLine{route, shard, state})
			}
		}
	}
	return lines, err
}
