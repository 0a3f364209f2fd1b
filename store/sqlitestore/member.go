package sqlitestore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/postrider/postrider/relay"
)

var _ relay.Sharer = (*Store)(nil)

const (
	// sqlRoster tells of each relay whether it has more than two thirds of its
	// time to live left; with the routes that are paused after them.
	sqlRoster = `SELECT owner, routes, expires > ` + sqlNow + ` + ?1 * 2 / 3, 0 AS paused, joined FROM postrider_member WHERE expires > ` + sqlNow + `
	UNION ALL SELECT name, '[]', 0, 1, 0 FROM postrider_route WHERE paused_at IS NOT NULL
	ORDER BY paused, joined, owner`
	sqlJoin = `INSERT INTO postrider_member (owner, routes, joined, expires) VALUES (?1, ?2, ` + sqlNow + `, ` + sqlNow + ` + ?3)
	ON CONFLICT (owner) DO UPDATE SET routes = excluded.routes, expires = excluded.expires,
		joined = CASE WHEN postrider_member.expires > ` + sqlNow + ` THEN postrider_member.joined ELSE excluded.joined END`
	// sqlForget leaves rows that nobody keeps alive for a while, for people to see.
	sqlForget = `DELETE FROM postrider_member WHERE expires < ` + sqlNow + ` - 60000000`
	sqlLeave  = `DELETE FROM postrider_member WHERE owner = ?`
)

// Look puts the relay on the roster, as relay.Sharer says. It writes only when
// a third of the time to live has passed since it did last, or the row is gone.
// ErrNewer if a later version has migrated the tables and left this one out: who
// cannot take a shard must not be counted.
func (s *Store) Look(ctx context.Context, self relay.Member, ttl time.Duration) (relay.Roster, error) {
	routes, err := json.Marshal(self.Routes)
	if err != nil {
		return relay.Roster{}, fmt.Errorf("sqlitestore: encode the names of routes: %w", err)
	}
	if err := checkUsable(ctx, s.reads); err != nil {
		return relay.Roster{}, fmt.Errorf("sqlitestore: look at the roster: %w", err)
	}
	roster, known, fresh, err := s.roster(ctx, self, string(routes), ttl)
	if err != nil {
		return relay.Roster{}, fmt.Errorf("sqlitestore: look at the roster: %w", err)
	}
	if !known {
		roster.Members = append(roster.Members, self) // it joins after all others
	}
	if fresh {
		return roster, nil
	}
	if _, err = s.settles.ExecContext(ctx, sqlJoin, self.Owner, string(routes), leaseMicros(ttl)); err == nil {
		_, err = s.settles.ExecContext(ctx, sqlForget)
	}
	if err != nil {
		return relay.Roster{}, fmt.Errorf("sqlitestore: join the roster: %w", err)
	}
	return roster, nil
}

// roster reads who is at work. known: the relay itself is among them; fresh:
// its row can stay as it is.
func (s *Store) roster(ctx context.Context, self relay.Member, routes string, ttl time.Duration) (roster relay.Roster, known, fresh bool, err error) {
	rows, err := s.reads.QueryContext(ctx, sqlRoster, ttl.Microseconds())
	if err != nil {
		return roster, false, false, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, serves string
		var young, paused bool
		var joined int64
		if err := rows.Scan(&name, &serves, &young, &paused, &joined); err != nil {
			return roster, false, false, err
		}
		if paused {
			roster.Paused = append(roster.Paused, name)
			continue
		}
		m := relay.Member{Owner: name}
		if name == self.Owner {
			m, known, fresh = self, true, young && serves == routes
		} else if json.Unmarshal([]byte(serves), &m.Routes) != nil {
			continue // nobody can tell what it serves; it writes its row again
		}
		roster.Members = append(roster.Members, m)
	}
	return roster, known, fresh, rows.Err()
}

// Leave takes the relay off the roster, as relay.Sharer says.
func (s *Store) Leave(ctx context.Context, owner string) error {
	if _, err := s.settles.ExecContext(ctx, sqlLeave, owner); err != nil {
		return fmt.Errorf("sqlitestore: leave the roster: %w", err)
	}
	return nil
}
