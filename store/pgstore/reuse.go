package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/admin"
)

const (
	// A row is one that was never read, although its number counts as done, if a
	// transaction wrote it that the position cannot have seen (seen), or that began
	// after its number was given out (checked: of the numbers up to it every owner
	// has an id below checked_xid). Numbers that may yet appear are not done. An id
	// that the server has not given out yet belongs to another cluster: such a row
	// came with a restored dump, as did those up to restored.
	reusedRule = `l.seq > c.restored AND l.xid < pg_snapshot_xmax(pg_current_snapshot())
		AND (l.xid >= c.seen OR l.seq <= c.checked AND l.xid >= c.checked_xid)`

	// reusedSQL looks at the newest rows at or below the position. It does not go
	// where the log was cleaned, through all that is dead there, but for a few.
	reusedSQL = `SELECT min(l.seq), max(c.pos), max(c.restored), max(c.seen::text), max(c.checked), max(c.checked_xid::text)
		FROM {s}.cursor AS c LEFT JOIN {s}.retention AS r ON r.shard = c.shard AND r.done <= (SELECT last_value FROM {seq})
		CROSS JOIN LATERAL (SELECT seq, xid FROM {log} WHERE seq <= c.pos AND seq > least(coalesce(r.done, 0), c.pos - 1000) ORDER BY seq DESC LIMIT 1000) AS l
		WHERE c.route = $1 AND c.shard = $2 AND ` + reusedRule + `
			AND NOT c.unsettled @> l.seq AND NOT EXISTS (SELECT FROM {s}.gap AS g WHERE g.route = $1 AND g.shard = $2 AND g.numbers @> l.seq)
		HAVING count(*) > 0`

	// restoredSQL takes note that the state or the newest rows are another
	// cluster's, whose ids tell nothing here. What is there by now came with it.
	restoredSQL = `UPDATE {s}.cursor AS c SET restored = greatest(c.pos, (SELECT max(seq) FROM {log})),
			seen = pg_snapshot_xmax(pg_current_snapshot()), checked = 0, checked_xid = '0'
		WHERE c.route = $1 AND c.shard = $2 AND c.token = $3 AND (c.seen > pg_snapshot_xmax(pg_current_snapshot())
			OR EXISTS (SELECT FROM (SELECT xid FROM {log} WHERE seq > greatest(c.restored, c.pos - 1000) ORDER BY seq DESC LIMIT 100) AS l WHERE l.xid >= pg_snapshot_xmax(pg_current_snapshot())))
		RETURNING ctid::text`
)

// FarNumber is where numbers begin that no sequence gets to by counting, at a
// million a second for a hundred thousand years. Who has one has set it by hand.
const FarNumber = math.MaxInt64 / 2

// noteRestored is for a cursor that may have come with a dump of another
// cluster.
func (c *Cursor) noteRestored(ctx context.Context, tx pgx.Tx) error {
	err := tx.QueryRow(ctx, c.schema.logSQL(restoredSQL, c.claim.Shard), c.claim.Route, c.claim.Shard, c.token).Scan(&c.ctid)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

// CheckReuse reports an error where numbers that count as done were given out
// again, to messages that were never read: after TRUNCATE … RESTART IDENTITY or
// setval, or to who chose them himself. It looks at about 1000 rows.
func (c *Cursor) CheckReuse(ctx context.Context) error { return c.checkReuse(ctx, c.db) }

func (c *Cursor) checkReuse(ctx context.Context, db Querier) error {
	problem, err := reused(ctx, db, c.schema, c.claim.Route, c.claim.Shard)
	if err == nil && problem != nil {
		err = logError(*problem)
	}
	return err
}

// reused returns nil where no number was given out again.
func reused(ctx context.Context, db Querier, schema Schema, route string, shard int) (*admin.LogProblem, error) {
	var lowest, pos, restored, checked int64
	var seen, checkedXid string
	err := db.QueryRow(ctx, schema.logSQL(reusedSQL, shard), route, shard).Scan(&lowest, &pos, &restored, &seen, &checked, &checkedXid)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rows := strings.NewReplacer("c.restored", fmt.Sprint(restored), "pg_snapshot_xmax(pg_current_snapshot())", "pg_current_xact_id()",
		"c.seen", "'"+seen+"'::xid8", "c.checked_xid", "'"+checkedXid+"'::xid8", "c.checked", fmt.Sprint(checked), "\n\t\t", " ").
		Replace(fmt.Sprintf("l.seq <= %d AND ", pos) + reusedRule)
	return &admin.LogProblem{Shard: shard, Route: route, Stops: true, Mend: schema.renumber(shard, rows),
		Text: fmt.Sprintf("numbers from %d on were given out again, by TRUNCATE, setval or an INSERT that chooses them, so messages that were not sent count as done", lowest)}, nil
}

// locked runs a statement on a shard's log while nobody writes to it, and what
// was written has committed.
func (s Schema) locked(shard int, statements ...string) string {
	return fmt.Sprintf("BEGIN; LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE; %s; COMMIT", s.Log(shard), strings.Join(statements, "; "))
}

// renumber gives rows, of alias l, new numbers in the order of their old ones, so
// that they are read as new messages.
func (s Schema) renumber(shard int, rows string) string {
	return s.locked(shard,
		s.logSQL(fmt.Sprintf(`SELECT setval(%s, greatest(last_value, (SELECT max(pos) FROM {s}.cursor WHERE shard = %d AND pos < %d))) FROM {seq}`, s.sequenceLiteral(shard), shard, int64(FarNumber)), shard),
		s.logSQL(fmt.Sprintf(`UPDATE {log} AS t SET seq = n.seq, xid = DEFAULT FROM (SELECT l.seq AS old, nextval(%s) AS seq FROM (SELECT * FROM {log} ORDER BY seq) AS l WHERE %s) AS n WHERE t.seq = n.old`, s.sequenceLiteral(shard), rows), shard))
}

// sequenceLiteral is the sequence's name as functions take it.
func (s Schema) sequenceLiteral(shard int) string {
	return "'" + quoteLiteral(s.LogSequence(shard)) + "'"
}
