package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// dueSoonSQL looks at the first row of each index range only. ORDER BY and LIMIT
// keep it there, whatever the planner thinks of the number of rows.
const dueSoonSQL = `SELECT l.place::integer FROM unnest($1::text[], $2::integer[]) WITH ORDINALITY AS l (route, shard, place)
	CROSS JOIN LATERAL (SELECT due_at FROM {s}.parked AS p WHERE p.route = l.route AND p.shard = l.shard AND p.due_at IS NOT NULL
		ORDER BY p.due_at, p.arrival LIMIT 1) AS first
	WHERE first.due_at <= statement_timestamp() + $3::bigint * interval '1 microsecond'`

// RouteShard names one shard of one route.
type RouteShard struct {
	Route string
	Shard int
}

// DueSoon tells of which of the shards parked messages are due, or will be
// within that time by the server's clock, in one statement that reads one row of
// each.
func DueSoon(ctx context.Context, db Querier, schema Schema, of []RouteShard, within time.Duration) ([]bool, error) {
	routes, shards := make([]string, len(of)), make([]int32, len(of))
	for i, r := range of {
		routes[i], shards[i] = r.Route, int32(r.Shard)
	}
	rows, err := db.Query(ctx, schema.sql(dueSoonSQL), routes, shards, within.Microseconds())
	if err != nil {
		return nil, fmt.Errorf("look for parked messages that are due: %w", err)
	}
	due := make([]bool, len(of))
	var place int
	if _, err := pgx.ForEachRow(rows, []any{&place}, func() error { due[place-1] = true; return nil }); err != nil {
		return nil, fmt.Errorf("look for parked messages that are due: %w", err)
	}
	return due, nil
}
