package pgstore

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/relay"
)

// recallSQL makes pending messages due. It locks the cursor's row, which a
// takeover updates, so a relay that was replaced changes nothing.
const recallSQL = `WITH held AS MATERIALIZED (
		SELECT 1 FROM {s}.cursor WHERE route = $1 AND shard = $2 AND token = $3 FOR UPDATE),
	due AS (
		UPDATE {s}.parked SET due_at = '-infinity', changed_at = clock_timestamp()
		WHERE route = $1 AND shard = $2 AND seq = ANY ($4::bigint[]) AND state = 'pending' AND EXISTS (SELECT FROM held))
	SELECT count(*) FROM held`

// Recall makes messages due at once, those of the given numbers that are parked
// as pending. relay.ErrFenced if the token is not this lease's any more; then
// nothing is changed.
func (c *Cursor) Recall(ctx context.Context, seqs []int64) error {
	var held int
	err := c.db.QueryRow(ctx, c.schema.sql(recallSQL), c.claim.Route, c.claim.Shard, c.token, seqs).Scan(&held)
	if err != nil {
		return fmt.Errorf("recall messages of shard %d of route %s: %w", c.claim.Shard, c.claim.Route, err)
	}
	if held == 0 {
		return relay.ErrFenced
	}
	return nil
}
