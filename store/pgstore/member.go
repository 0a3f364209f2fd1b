package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

const (
	// lookSQL writes only when a third of the time to live has passed since it
	// did last (or the row is gone), so that mostly it takes no transaction id.
	// What it returns is as of its beginning: without the row that it writes.
	// Rows that nobody keeps alive stay for a while, for people to see.
	lookSQL = `WITH fresh AS (
			SELECT FROM {s}.member WHERE owner = $1 AND routes = $2 AND expires > clock_timestamp() + $3 * interval '1 microsecond' * 2 / 3),
		written AS (
			INSERT INTO {s}.member AS m (owner, routes, expires)
			SELECT $1, $2, clock_timestamp() + $3 * interval '1 microsecond' WHERE NOT EXISTS (SELECT FROM fresh)
			ON CONFLICT (owner) DO UPDATE SET routes = excluded.routes, expires = excluded.expires,
				joined_at = CASE WHEN m.expires > clock_timestamp() THEN m.joined_at ELSE excluded.joined_at END),
		forgotten AS (
			DELETE FROM {s}.member WHERE owner IN (SELECT owner FROM {s}.member
				WHERE expires < clock_timestamp() - interval '1 minute' AND owner <> $1 AND NOT EXISTS (SELECT FROM fresh)
				FOR UPDATE SKIP LOCKED))
		SELECT name, routes, paused FROM (
			SELECT owner AS name, routes, joined_at, false AS paused FROM {s}.member WHERE expires > clock_timestamp()
			UNION ALL SELECT name, NULL, NULL, true FROM {s}.route WHERE paused_at IS NOT NULL) AS roster
		ORDER BY joined_at, name`

	leaveSQL = `DELETE FROM {s}.member WHERE owner = $1`
)

// Look puts the relay on the roster, as relay.Sharer says.
func Look(ctx context.Context, db DB, schema Schema, self relay.Member, ttl time.Duration) (relay.Roster, error) {
	var roster relay.Roster
	routes := self.Routes
	if routes == nil {
		routes = []string{} // the column takes no NULL
	}
	rows, err := db.Query(ctx, schema.sql(lookSQL), self.Owner, routes, ttl.Microseconds())
	if err == nil {
		var name string
		var serves []string
		var paused bool
		seen := false
		_, err = pgx.ForEachRow(rows, []any{&name, &serves, &paused}, func() error {
			switch {
			case paused:
				roster.Paused = append(roster.Paused, name)
			case name == self.Owner:
				seen = true
				roster.Members = append(roster.Members, self)
			default:
				roster.Members = append(roster.Members, relay.Member{Owner: name, Routes: serves})
			}
			return nil
		})
		if !seen {
			roster.Members = append(roster.Members, self) // it has just joined, after all others
		}
	}
	if err != nil {
		return relay.Roster{}, fmt.Errorf("look at the roster: %w", err)
	}
	return roster, nil
}

// Leave takes the relay off the roster, as relay.Sharer says.
func Leave(ctx context.Context, db DB, schema Schema, owner string) error {
	if _, err := db.Exec(ctx, schema.sql(leaveSQL), owner); err != nil {
		return fmt.Errorf("leave the roster: %w", err)
	}
	return nil
}
