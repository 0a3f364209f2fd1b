package pgstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

const (
	// rosterSQL tells of each relay whether it has more than two thirds of its
	// time to live left; of the routes that are paused; and, with NULL for paused,
	// what a program must know to use the tables. A row that lives on for longer
	// than relays ask for counts for nothing: somebody wrote it by hand, or the
	// server's clock was wrong.
	rosterSQL = `SELECT name, routes, young, paused FROM (
			SELECT owner AS name, routes, joined_at, expires > clock_timestamp() + $1 * interval '1 microsecond' * 2 / 3 AS young, false AS paused
			FROM {s}.member WHERE expires > clock_timestamp() AND expires < clock_timestamp() + interval '1 day' + $1 * interval '1 microsecond'
			UNION ALL SELECT name, NULL, NULL, false, true FROM {s}.route WHERE paused_at IS NOT NULL
			UNION ALL SELECT value, NULL, NULL, false, NULL FROM {s}.meta WHERE name = 'compatible_from') AS roster
		ORDER BY joined_at, name`

	// joinSQL leaves rows that nobody keeps alive for a while, for people to see.
	joinSQL = `WITH forgotten AS (
			DELETE FROM {s}.member WHERE owner IN (SELECT owner FROM {s}.member
				WHERE (expires < clock_timestamp() - interval '1 minute' OR expires >= clock_timestamp() + interval '1 day' + $3 * interval '1 microsecond') AND owner <> $1 FOR UPDATE SKIP LOCKED))
		INSERT INTO {s}.member AS m (owner, routes, expires) VALUES ($1, $2, clock_timestamp() + $3 * interval '1 microsecond')
		ON CONFLICT (owner) DO UPDATE SET routes = excluded.routes, expires = excluded.expires,
			joined_at = CASE WHEN m.expires > clock_timestamp() THEN m.joined_at ELSE excluded.joined_at END`

	leaveSQL = `DELETE FROM {s}.member WHERE owner = $1`
)

// Look puts the relay on the roster, as relay.Sharer says. It writes only when a
// third of the time to live has passed since it did last, or the row is gone or
// wrong, so that mostly it takes no transaction id. ErrNewerSchema if a later
// version has migrated the tables and left this one out: who cannot take a shard
// must not be counted.
func Look(ctx context.Context, db DB, schema Schema, self relay.Member, ttl time.Duration) (relay.Roster, error) {
	roster, known, fresh, err := readRoster(ctx, db, schema, self, ttl)
	if err != nil {
		return relay.Roster{}, fmt.Errorf("look at the roster: %w", err)
	}
	if !known {
		roster.Members = append(roster.Members, self) // it joins after all others
	}
	if fresh {
		return roster, nil
	}
	routes := self.Routes
	if routes == nil {
		routes = []string{} // the column takes no NULL
	}
	if _, err := db.Exec(ctx, schema.sql(joinSQL), self.Owner, routes, ttl.Microseconds()); err != nil {
		return relay.Roster{}, fmt.Errorf("join the roster: %w", err)
	}
	return roster, nil
}

// readRoster reads who is at work. known: the relay itself is among them; fresh:
// its row can stay as it is.
func readRoster(ctx context.Context, db DB, schema Schema, self relay.Member, ttl time.Duration) (roster relay.Roster, known, fresh bool, err error) {
	rows, err := db.Query(ctx, schema.sql(rosterSQL), ttl.Microseconds())
	if err != nil {
		return roster, false, false, err
	}
	var name string
	var serves []string
	var young bool
	var paused *bool
	_, err = pgx.ForEachRow(rows, []any{&name, &serves, &young, &paused}, func() error {
		if paused == nil {
			return checkCompatible(name)
		}
		if *paused {
			roster.Paused = append(roster.Paused, name)
			return nil
		}
		m := relay.Member{Owner: name, Routes: serves}
		if name == self.Owner {
			m, known, fresh = self, true, young && slices.Equal(serves, self.Routes)
		}
		roster.Members = append(roster.Members, m)
		return nil
	})
	return roster, known, fresh, err
}

// Leave takes the relay off the roster, as relay.Sharer says.
func Leave(ctx context.Context, db DB, schema Schema, owner string) error {
	if _, err := db.Exec(ctx, schema.sql(leaveSQL), owner); err != nil {
		return fmt.Errorf("leave the roster: %w", err)
	}
	return nil
}
