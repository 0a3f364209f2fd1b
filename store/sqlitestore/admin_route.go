package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postrider/postrider/admin"
)

const (
	sqlPause = `INSERT INTO postrider_route (name, paused_at, paused_by, paused_note, updated_at) VALUES (?1, ` + sqlNow + `, ?2, ?3, ` + sqlNow + `)
	ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_note = excluded.paused_note, updated_at = excluded.updated_at
	WHERE paused_at IS NULL`
	sqlResume = `UPDATE postrider_route SET paused_at = NULL, paused_by = '', paused_note = '', updated_at = ` + sqlNow + ` WHERE name = ? AND paused_at IS NOT NULL`

	sqlHolder = `SELECT owner FROM postrider_cursor WHERE route = ?1 AND expires > ` + sqlNow + `
	UNION ALL SELECT m.owner FROM postrider_member AS m, json_each(m.routes) AS j WHERE j.value = ?1 AND m.expires > ` + sqlNow + ` LIMIT 1`
	sqlShut         = `UPDATE postrider_cursor SET token = token + 1, expires = 0 WHERE route = ?`
	sqlRemoveParked = `DELETE FROM postrider_parked WHERE arrival IN (SELECT arrival FROM postrider_parked WHERE route = ? LIMIT ?)`
	sqlRemoveCursor = `DELETE FROM postrider_cursor WHERE route = ?`
	sqlRemoveRoute  = `DELETE FROM postrider_route WHERE name = ?`
)

// removePage is how many parked messages one transaction deletes.
const removePage = 5000

// SetPaused is as admin.Router says.
func (a *Admin) SetPaused(ctx context.Context, route string, paused bool, entry *admin.Entry) (changed bool, err error) {
	written := *entry
	err = inTx(ctx, a.db, func(tx *sql.Tx) error {
		statement, args := sqlResume, []any{route}
		if paused {
			statement, args = sqlPause, []any{route, entry.By, entry.Note}
		}
		result, err := tx.ExecContext(ctx, statement, args...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if changed = n > 0; err != nil || !changed {
			return err
		}
		return record(ctx, tx, &written, 0)
	})
	if err != nil {
		return false, fmt.Errorf("sqlitestore: %s route %q: %w", entry.Action, route, err)
	}
	*entry = written
	return changed, nil
}

// RemoveRoute is as admin.Router says. Its cursors go last, so that a removal
// that is interrupted is seen and can be finished.
func (a *Admin) RemoveRoute(ctx context.Context, route string, force bool, entry *admin.Entry) (admin.Removed, error) {
	removed, err := a.removeRoute(ctx, route, force, entry)
	if err != nil {
		return removed, fmt.Errorf("sqlitestore: remove route %q: %w", route, err)
	}
	return removed, nil
}

func (a *Admin) removeRoute(ctx context.Context, route string, force bool, entry *admin.Entry) (removed admin.Removed, err error) {
	written := *entry
	err = inTx(ctx, a.db, func(tx *sql.Tx) error {
		if removed.Pending, err = shutRoute(ctx, tx, route, force, entry.By); err != nil {
			return err
		}
		return record(ctx, tx, &written, 0)
	})
	if err != nil {
		return admin.Removed{}, err
	}
	*entry = written
	for n := int64(removePage); n == removePage; {
		written := *entry
		err := inTx(ctx, a.db, func(tx *sql.Tx) error {
			result, err := tx.ExecContext(ctx, sqlRemoveParked, route, removePage)
			if err != nil {
				return err
			}
			if n, err = result.RowsAffected(); err != nil {
				return err
			}
			return record(ctx, tx, &written, n)
		})
		if err != nil {
			return removed, err
		}
		*entry = written
		removed.Parked += n
	}
	return removed, inTx(ctx, a.db, func(tx *sql.Tx) error {
		_, err1 := tx.ExecContext(ctx, sqlRemoveCursor, route)
		_, err2 := tx.ExecContext(ctx, sqlRemoveRoute, route)
		return errors.Join(err1, err2)
	})
}

// shutRoute keeps relays away from the route, and returns about how many messages
// it has not sent.
func shutRoute(ctx context.Context, tx *sql.Tx, route string, force bool, by string) (pending int64, err error) {
	var owner string
	err = tx.QueryRowContext(ctx, sqlHolder, route).Scan(&owner)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return 0, err
	case !force:
		return 0, fmt.Errorf("%w: %s", admin.ErrServed, owner)
	}
	r := statusReader{ctx: ctx, tx: tx}
	for _, err := range r.read() {
		if err != nil {
			return 0, err
		}
	}
	for _, s := range r.route(route).Shards {
		pending += s.Tail - s.Position + s.Unsettled
	}
	if _, err := tx.ExecContext(ctx, sqlPause, route, by, "being removed"); err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, sqlShut, route)
	return pending, err
}
