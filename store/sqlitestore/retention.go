package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/internal/sweep"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

var _ relay.Cleaner = (*Store)(nil)

const (
	sqlNeeds = `SELECT pos, unsettled, topics FROM postrider_cursor WHERE shard = ?`
	// sqlWithoutCursor is whether a relay at work has a route that has not begun
	// to read the shard.
	sqlWithoutCursor = `SELECT EXISTS (SELECT 1 FROM postrider_member AS m, json_each(m.routes) AS r
	WHERE m.expires > ` + sqlNow + ` AND NOT EXISTS (SELECT 1 FROM postrider_cursor AS c WHERE c.route = r.value AND c.shard = ?))`
	// sqlFollowers are read from the log when their turn comes.
	sqlFollowers = `SELECT p.seq FROM postrider_cursor AS c CROSS JOIN postrider_parked AS p
	WHERE c.shard = ?1 AND p.route = c.route AND p.shard = ?1 AND p.seq > ?2 AND p.seq <= ?3 AND p.id IS NULL AND p.state NOT IN ('failed', 'expired', 'discarded')`

	sqlCleanRoutes = `SELECT DISTINCT route FROM postrider_cursor`
)

// cleanPage is how many rows one transaction looks at. Who enqueues waits for
// it, so it is short.
const cleanPage = 500

// cleaner is what a Store keeps in mind of what it has deleted.
type cleaner struct {
	shards []cleanedShard
	parked sweep.Lines[parkedLine]
}

type cleanedShard struct {
	done  int64 // up to here only what was still needed is left
	left  bool  // something is
	sweep sweep.Sweep
}

// parkedLine is the messages of one state on one shard of one route.
type parkedLine struct {
	route string
	shard int
	state outbox.State
}

// Clean deletes some of what the retention lets go, as relay.Cleaner says: a
// page of each shard's log, and one of parked messages.
func (s *Store) Clean(ctx context.Context, keep relay.Retention) (total relay.Cleaned, err error) {
	s.cleaning.Lock()
	defer s.cleaning.Unlock()
	if s.cleaner.shards == nil {
		s.cleaner.shards = make([]cleanedShard, s.shards)
	}
	for shard := range s.cleaner.shards {
		if keep.Sent < 0 {
			break
		}
		n, more, err := s.cleanLog(ctx, shard, keep.Sent)
		if err != nil {
			return total, fmt.Errorf("sqlitestore: delete old messages of shard %d: %w", shard, err)
		}
		total.Log += n
		total.More = total.More || more
	}
	n, more, err := s.cleanParked(ctx, keep)
	if err != nil {
		return total, fmt.Errorf("sqlitestore: delete old parked messages: %w", err)
	}
	total.Parked = n
	total.More = total.More || more
	return total, nil
}

// cleanLog deletes one page of a shard's log. It asks for the right to write
// only if there is something to delete.
func (s *Store) cleanLog(ctx context.Context, shard int, sent time.Duration) (deleted int64, more bool, err error) {
	c := &s.cleaner.shards[shard]
	sweeping := c.sweep.GoesOn() || c.left && c.sweep.Begin(0)
	from, upto := c.done, int64(1<<62)
	if sweeping {
		from, upto = c.sweep.At(), c.done
	}
	page, err := readCleanPage(ctx, s.reads, shard, from, upto, sent)
	if err == nil && len(page.free) > 0 {
		err = inTx(ctx, s.settles, func(tx *sql.Tx) error {
			if page, err = readCleanPage(ctx, tx, shard, from, upto, sent); err != nil || len(page.free) == 0 {
				return err
			}
			deleted, err = page.remove(ctx, tx, shard)
			return err
		})
	}
	if err != nil {
		c.sweep.Stop()
		return 0, false, err
	}
	switch {
	case sweeping:
		free := c.sweep.Step(page.end, page.first, page.full)
		c.left = c.sweep.GoesOn() || free < c.done
		return deleted, true, nil
	case page.last > c.done:
		c.done, c.left = page.last, c.left || page.first > 0 && page.first <= page.last
		return deleted, page.full, nil
	}
	return deleted, false, nil
}

// page is part of a log as one statement saw it.
type page struct {
	free  []int64 // what can be deleted
	first int64   // the lowest number that cannot; 0: none
	last  int64   // the last one that is old enough; 0: none
	end   int64   // up to where it was looked; 0: nowhere
	full  bool    // there may be more
}

func readCleanPage(ctx context.Context, q querier, shard int, from, upto int64, sent time.Duration) (p page, err error) {
	needs, err := readNeeds(ctx, q, shard)
	if err != nil || needs == nil {
		return p, err
	}
	upto = min(upto, needs.pos)
	p.end = upto
	type row struct {
		seq   int64
		old   bool
		topic string
	}
	var rows []row
	query := `SELECT seq, created_at <= ` + sqlNow + ` - ?4, topic FROM ` + logTable(shard) + ` WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3`
	err = eachRow(ctx, q, query, []any{from, upto, cleanPage, sent.Microseconds()}, func(scan func(...any) error) error {
		var r row
		err := scan(&r.seq, &r.old, &r.topic)
		rows = append(rows, r)
		return err
	})
	if err != nil || len(rows) == 0 {
		return p, err
	}
	if p.full = len(rows) == cleanPage; p.full {
		p.end = rows[len(rows)-1].seq
	}
	err = eachRow(ctx, q, sqlFollowers, []any{shard, from, p.end}, func(scan func(...any) error) error {
		var seq int64
		err := scan(&seq)
		needs.numbers.Add(seq, seq)
		return err
	})
	for _, row := range rows {
		if row.old {
			p.last = row.seq
		}
		switch {
		case row.old && !needs.numbers.Has(row.seq) && needs.routed(row.topic):
			p.free = append(p.free, row.seq)
		case p.first == 0:
			p.first = row.seq
		}
	}
	return p, err
}

// needs is what routes still have to do with a shard's log.
type needs struct {
	pos     int64      // up to here all have read it
	numbers numset.Set // some have no outcome on these
	takes   []func(topic string) bool
}

// routed reports whether some route takes the topic. What none takes stays until
// one does.
func (n *needs) routed(topic string) bool {
	return slices.ContainsFunc(n.takes, func(takes func(string) bool) bool { return takes(topic) })
}

// readNeeds returns nil where nothing may be deleted: there is no route, one at
// work has not begun to read, or numbers count as done that the table has not
// given out, so that it was reset.
func readNeeds(ctx context.Context, q querier, shard int) (*needs, error) {
	var unread bool
	if err := q.QueryRowContext(ctx, sqlWithoutCursor, shard).Scan(&unread); err != nil || unread {
		return nil, err
	}
	var last int64
	if err := q.QueryRowContext(ctx, sqlLastNumber, logTable(shard)).Scan(&last); err != nil {
		return nil, err
	}
	n := needs{pos: math.MaxInt64}
	err := eachRow(ctx, q, sqlNeeds, []any{shard}, func(scan func(...any) error) error {
		var pos int64
		var text, topics string
		if err := scan(&pos, &text, &topics); err != nil {
			return err
		}
		unsettled, err := decodeNumbers(text)
		if err != nil {
			return err
		}
		for _, r := range unsettled.Ranges() {
			n.numbers.Add(r.First, r.Last)
		}
		patterns, err := decodeTopics(topics)
		if err != nil {
			return err
		}
		takes, err := relay.Matcher(patterns)
		n.takes = append(n.takes, takes)
		n.pos = min(n.pos, pos)
		if pos > last {
			n.pos = -1
		}
		return err
	})
	if err != nil || len(n.takes) == 0 || n.pos < 0 {
		return nil, err
	}
	return &n, nil
}

func (p *page) remove(ctx context.Context, tx *sql.Tx, shard int) (deleted int64, err error) {
	list, err := json.Marshal(p.free)
	if err != nil {
		return 0, err
	}
	result, err := tx.ExecContext(ctx, `DELETE FROM `+logTable(shard)+` WHERE seq IN (SELECT value FROM json_each(?))`, string(list))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
