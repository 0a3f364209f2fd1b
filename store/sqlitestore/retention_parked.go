package sqlitestore

import (
	"context"
	"strings"

	"github.com/postrider/postrider/relay"
)

// Both statements: ?1 route, ?2 state, ?3 shard, ?4 after which number, ?5 how
// many to look at, ?6 for how long they are kept.
const (
	textParkedPage = `SELECT seq, closes = 0 AND due IS NULL AND changed_at <= ` + sqlNow + ` - ?6
		AND NOT EXISTS (SELECT 1 FROM {log} AS l WHERE l.seq = p.seq) AS free
	FROM postrider_parked AS p WHERE route = ?1 AND state = ?2 AND shard = ?3 AND seq > ?4 ORDER BY seq LIMIT ?5`
	sqlLookParked = `SELECT count(*), coalesce(max(seq), 0), coalesce(sum(free), 0) FROM (` + textParkedPage + `)`
	sqlGoneParked = `DELETE FROM postrider_parked WHERE route = ?1 AND shard = ?3 AND seq IN (SELECT seq FROM (` + textParkedPage + `) WHERE free)`
)

// cleanParked deletes one page of parked messages that have ended. One that is
// still in the log stays, since without its row it would count as sent; so does
// one that a relay has to hear of, or that holds its key.
func (s *Store) cleanParked(ctx context.Context, keep relay.Retention) (deleted int64, more bool, err error) {
	c := &s.cleaner
	line, after, ok, err := c.parked.Next(func() ([]parkedLine, error) { return s.parkedLines(ctx, keep) })
	if err != nil || !ok {
		return 0, false, err
	}
	fill := strings.NewReplacer("{log}", logTable(line.shard)).Replace
	args := []any{line.route, line.state, line.shard, after, cleanPage, keep.Of(line.state).Microseconds()}
	var rows, last, free int64
	err = s.reads.QueryRowContext(ctx, fill(sqlLookParked), args...).Scan(&rows, &last, &free)
	if err == nil && free > 0 {
		result, failed := s.settles.ExecContext(ctx, fill(sqlGoneParked), args...)
		if err = failed; err == nil {
			deleted, err = result.RowsAffected()
		}
	}
	if err != nil {
		c.parked.Stop()
		return 0, false, err
	}
	return deleted, c.parked.Step(last, rows == cleanPage), nil
}

func (s *Store) parkedLines(ctx context.Context, keep relay.Retention) (lines []parkedLine, err error) {
	err = eachRow(ctx, s.reads, sqlCleanRoutes, nil, func(scan func(...any) error) error {
		var route string
		err := scan(&route)
		for shard := range s.shards {
			for _, state := range keep.Ends() {
				lines = append(lines, parkedLine{route, shard, state})
			}
		}
		return err
	})
	return lines, err
}
