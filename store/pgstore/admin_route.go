package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/admin"
)

const (
	pauseSQL = `INSERT INTO {s}.route AS r (name, paused_at, paused_by, paused_note) VALUES ($1, clock_timestamp(), $2, $3)
		ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_note = excluded.paused_note, updated_at = clock_timestamp()
		WHERE r.paused_at IS NULL RETURNING name`

	resumeSQL = `UPDATE {s}.route SET paused_at = NULL, paused_by = '', paused_note = '', updated_at = clock_timestamp()
		WHERE name = $1 AND paused_at IS NOT NULL RETURNING name`

	// Locked first: a relay that takes a shard in between waits, and then sees
	// that the route is paused.
	lockRouteSQL = `SELECT shard, pos, (SELECT coalesce(sum(upper(r) - lower(r)), 0)::bigint FROM unnest(unsettled) AS r),
			CASE WHEN lease_until > clock_timestamp() THEN owner ELSE '' END
		FROM {s}.cursor WHERE route = $1 ORDER BY shard FOR UPDATE`
	servedSQL = `SELECT owner FROM {s}.member WHERE $1 = ANY (routes) AND expires > clock_timestamp() LIMIT 1`

	// Its relay is fenced, and none takes it until it is gone.
	shutRouteSQL   = `UPDATE {s}.cursor SET token = gen_random_uuid(), lease_until = '-infinity' WHERE route = $1`
	removePauseSQL = `INSERT INTO {s}.route (name, paused_at, paused_by, paused_note) VALUES ($1, clock_timestamp(), $2, 'being removed')
		ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_note = excluded.paused_note, updated_at = clock_timestamp()`

	// Each page begins where the one before ended, not at what it left dead.
	removeParkedSQL = `WITH page AS MATERIALIZED (
			SELECT shard, seq FROM {s}.parked WHERE route = $1 AND (shard, seq) > ($2, $3) ORDER BY shard, seq LIMIT $4),
		gone AS (DELETE FROM {s}.parked AS p USING page WHERE p.route = $1 AND p.shard = page.shard AND p.seq = page.seq)
		SELECT shard, seq, (SELECT count(*) FROM page) FROM page ORDER BY shard DESC, seq DESC LIMIT 1`
)

// removeGoneSQL ends a removal.
var removeGoneSQL = []string{
	`DELETE FROM {s}.gap WHERE route = $1`, `DELETE FROM {s}.mark WHERE route = $1`, `DELETE FROM {s}.cursor WHERE route = $1`, `DELETE FROM {s}.route WHERE name = $1`,
}

// removePage is how many parked messages one transaction deletes.
const removePage = 5000

// SetPaused is as admin.Router says.
func (a *Admin) SetPaused(ctx context.Context, route string, paused bool, entry *admin.Entry) (changed bool, err error) {
	written := *entry
	err = a.write(ctx, func(tx pgx.Tx) error {
		statement, args := resumeSQL, []any{route}
		if paused {
			statement, args = pauseSQL, []any{route, errorText(entry.By), errorText(entry.Note)}
		}
		var name string
		err := tx.QueryRow(ctx, a.schema.sql(statement), args...).Scan(&name)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		changed = true
		return a.record(ctx, tx, &written, 0)
	})
	if err != nil {
		return false, fmt.Errorf("%s route %s: %w", entry.Action, route, err)
	}
	*entry = written
	return changed, nil
}

// RemoveRoute is as admin.Router says. Its cursors go last, so that a removal
// that is interrupted is seen and can be finished.
func (a *Admin) RemoveRoute(ctx context.Context, route string, force bool, entry *admin.Entry) (admin.Removed, error) {
	removed, err := a.removeRoute(ctx, route, force, entry)
	if err != nil {
		return removed, fmt.Errorf("remove route %s: %w", route, err)
	}
	return removed, nil
}

func (a *Admin) removeRoute(ctx context.Context, route string, force bool, entry *admin.Entry) (removed admin.Removed, err error) {
	written := *entry
	err = a.write(ctx, func(tx pgx.Tx) error {
		removed.Pending, err = a.shutRoute(ctx, tx, route, force, entry.By)
		if err != nil {
			return err
		}
		return a.record(ctx, tx, &written, 0)
	})
	if err != nil {
		return admin.Removed{}, err
	}
	*entry = written
	shard, seq, n := -1, int64(0), int64(removePage)
	for n == removePage {
		written := *entry
		err := a.write(ctx, func(tx pgx.Tx) error {
			err := tx.QueryRow(ctx, a.schema.sql(removeParkedSQL), route, shard, seq, removePage).Scan(&shard, &seq, &n)
			if errors.Is(err, pgx.ErrNoRows) {
				n = 0
				return nil
			}
			if err != nil {
				return err
			}
			return a.record(ctx, tx, &written, n)
		})
		if err != nil {
			return removed, err
		}
		*entry = written
		removed.Parked += n
	}
	return removed, a.write(ctx, func(tx pgx.Tx) error {
		for _, statement := range removeGoneSQL {
			if _, err := tx.Exec(ctx, a.schema.sql(statement), route); err != nil {
				return err
			}
		}
		return nil
	})
}

// shutRoute keeps relays away from the route, and returns about how many messages
// it has not sent.
func (a *Admin) shutRoute(ctx context.Context, tx pgx.Tx, route string, force bool, by string) (pending int64, err error) {
	status, err := ReadStatus(ctx, tx, a.schema)
	if err != nil {
		return 0, err
	}
	tails, err := Tails(ctx, tx, a.schema, shardsUpTo(status.Shards))
	if err != nil {
		return 0, err
	}
	rows, err := tx.Query(ctx, a.schema.sql(lockRouteSQL), route)
	if err != nil {
		return 0, err
	}
	var shard int
	var pos, unsettled int64
	var owner, holder string
	if _, err := pgx.ForEachRow(rows, []any{&shard, &pos, &unsettled, &holder}, func() error {
		pending += max(tails[shard]-pos, 0) + unsettled
		if holder != "" {
			owner = holder
		}
		return nil
	}); err != nil {
		return 0, err
	}
	if owner == "" {
		if err := tx.QueryRow(ctx, a.schema.sql(servedSQL), route).Scan(&owner); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return 0, err
		}
	}
	if owner != "" && !force {
		return 0, fmt.Errorf("%w: %s", admin.ErrServed, owner)
	}
	if _, err := tx.Exec(ctx, a.schema.sql(removePauseSQL), route, errorText(by)); err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, a.schema.sql(shutRouteSQL), route)
	return pending, err
}
