package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/postrider/postrider/relay"
)

const (
	// sqlHold is the fence where a settle's is not needed: it changes nothing.
	sqlHold = `UPDATE postrider_cursor SET token = token WHERE route = ? AND shard = ? AND token = ?`
	// sqlRecall makes pending messages due. ?3 a JSON array of numbers.
	sqlRecall = `UPDATE postrider_parked SET due = ` + sqlNow + `, changed_at = ` + sqlNow + `
	WHERE route = ?1 AND shard = ?2 AND state = 'pending' AND seq IN (SELECT value FROM json_each(?3))`
)

var _ relay.Recaller = (*lease)(nil)

// Recall implements relay.Recaller.
func (l *lease) Recall(ctx context.Context, seqs []int64) error {
	list, err := json.Marshal(seqs)
	if err != nil {
		return fmt.Errorf("sqlitestore: recall: %w", err)
	}
	err = inTx(ctx, l.store.settles, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, sqlHold, l.claim.Route, l.claim.Shard, l.token)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			if err != nil {
				return err
			}
			return relay.ErrFenced
		}
		_, err = tx.ExecContext(ctx, sqlRecall, l.claim.Route, l.claim.Shard, string(list))
		return err
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("sqlitestore: recall messages of shard %d of route %q: %w", l.claim.Shard, l.claim.Route, err)
	}
	return nil
}
