package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/postrider/postrider/admin"
)

// inspectSQL tells what somebody may have changed about one shard's log. The
// numbers of rows that are seen were drawn before the sequence is read: a
// statement reads that after it has taken its snapshot. No part of the index is
// gone through that may be full of what is dead. The defaults are compared
// as the server prints them, which depends on the search path alike on both sides.
const inspectSQL = `SELECT s.seqincrement, s.seqcache, s.seqcycle, s.seqmax, seq.last_value,
		replace(regexp_replace(pg_get_expr(dn.adbin, dn.adrelid), '\s+', ' ', 'g'), 'pg_catalog.', ''),
		'nextval( CASE WHEN (pg_current_xact_id() IS NOT NULL) THEN ' || '''' || replace(s.seqrelid::regclass::text, '''', '''''') || '''::regclass ELSE NULL::regclass END)',
		replace(pg_get_expr(dx.adbin, dx.adrelid), 'pg_catalog.', ''),
		(SELECT min(seq) FROM {log} WHERE seq <= 0), (SELECT max(l.seq) FROM {log} AS l WHERE l.seq > seq.last_value)
	FROM {seq} AS seq
	JOIN pg_catalog.pg_sequence AS s ON s.seqrelid = {seqname}::regclass
	LEFT JOIN pg_catalog.pg_attribute AS an ON an.attrelid = {logname}::regclass AND an.attname = 'seq'
	LEFT JOIN pg_catalog.pg_attrdef AS dn ON dn.adrelid = an.attrelid AND dn.adnum = an.attnum
	LEFT JOIN pg_catalog.pg_attribute AS ax ON ax.attrelid = {logname}::regclass AND ax.attname = 'xid'
	LEFT JOIN pg_catalog.pg_attrdef AS dx ON dx.adrelid = ax.attrelid AND dx.adnum = ax.attnum`

// fewNumbers left are worth a word: at a million a second they last an hour.
const fewNumbers = 1 << 32

// Inspect looks for what somebody has changed about a shard's log by hand, each
// with the statement that mends it. What Stops means that messages would be
// missed.
func Inspect(ctx context.Context, db Querier, schema Schema, shard int) ([]admin.LogProblem, error) {
	var increment, cache, largest, last int64
	var cycle bool
	var expected string
	var number, xid *string
	var negative, highest *int64
	err := db.QueryRow(ctx, schema.logSQL(inspectSQL, shard)).Scan(&increment, &cache, &cycle, &largest, &last, &number, &expected, &xid, &negative, &highest)
	if err != nil {
		return nil, fmt.Errorf("look at the log of shard %d: %w", shard, err)
	}
	var problems []admin.LogProblem
	report := func(stops bool, mend, format string, args ...any) {
		problems = append(problems, admin.LogProblem{Shard: shard, Stops: stops, Text: fmt.Sprintf(format, args...), Mend: mend})
	}
	log, seq := schema.Log(shard), schema.LogSequence(shard)
	alter := "ALTER SEQUENCE " + seq + " INCREMENT 1 NO MAXVALUE CACHE 1 NO CYCLE"
	if increment != 1 || cache != 1 || cycle {
		report(true, alter, "sequence %s has increment %d, cache %d, cycle %t, so messages can be missed", seq, increment, cache, cycle)
	}
	switch {
	case largest != math.MaxInt64:
		report(false, strings.Replace(alter, " INCREMENT", " AS bigint INCREMENT", 1), "sequence %s ends at %d, and enqueueing with it", seq, largest)
	case last > math.MaxInt64-fewNumbers:
		report(false, schema.lower(shard), "sequence %s has only %d numbers left", seq, largest-last)
	}
	setDefault := "ALTER TABLE " + log + " ALTER %s SET DEFAULT %s"
	draw := "nextval(CASE WHEN pg_current_xact_id() IS NOT NULL THEN " + schema.sequenceLiteral(shard) + "::regclass END)"
	switch {
	case number == nil:
		report(false, fmt.Sprintf(setDefault, "seq", draw), "column seq of %s has lost its default, so nothing can be enqueued", log)
	case *number != expected:
		report(true, fmt.Sprintf(setDefault, "seq", draw), "column seq of %s has another default (%s), so messages can be missed", log, *number)
	}
	switch {
	case xid == nil:
		report(false, fmt.Sprintf(setDefault, "xid", "pg_current_xact_id()"), "column xid of %s has lost its default, so nothing can be enqueued", log)
	case *xid != "pg_current_xact_id()":
		report(true, fmt.Sprintf(setDefault, "xid", "pg_current_xact_id()"), "column xid of %s has another default (%s), so messages can be missed", log, *xid)
	}
	if negative != nil {
		report(false, schema.renumber(shard, "l.seq <= 0"), "messages of %s have numbers that are not positive, the lowest %d: they are not read", log, *negative)
	}
	switch {
	case highest == nil:
	case *highest >= FarNumber && last < FarNumber:
		report(false, schema.renumber(shard, fmt.Sprintf("l.seq >= %d", int64(FarNumber))), "messages of %s have numbers that were not drawn, up to %d: they are not read", log, *highest)
	default:
		report(true, schema.setAtLeast(shard, *highest), "messages of %s have numbers that the sequence, at %d, has not given out, up to %d: enqueueing fails when it comes to them", log, last, *highest)
	}
	return problems, nil
}

// CheckLog reports an error if something about the log means that messages would
// be missed, as Inspect finds it.
func CheckLog(ctx context.Context, db Querier, schema Schema, shard int) error {
	problems, err := Inspect(ctx, db, schema, shard)
	if err != nil {
		return err
	}
	for _, p := range problems {
		if p.Stops {
			return logError(p)
		}
	}
	return nil
}

func logError(p admin.LogProblem) error { return errors.New(p.String()) }

// WentBack is the error of a sequence that is behind what a route has read: new
// messages would get numbers that count as done.
func (s Schema) WentBack(route string, shard int, tail, pos int64) error {
	return logError(s.wentBack(route, shard, tail, pos))
}

func (s Schema) wentBack(route string, shard int, tail, pos int64) admin.LogProblem {
	mend := s.setAtLeast(shard, pos)
	if pos >= FarNumber {
		mend = fmt.Sprintf("UPDATE %s SET pos = %d, unsettled = '{}', token = gen_random_uuid() WHERE route = '%s' AND shard = %d", s.Table("cursor"), tail, quoteLiteral(route), shard)
	}
	return admin.LogProblem{Shard: shard, Route: route, Stops: true, Mend: mend,
		Text: fmt.Sprintf("sequence %s stands at %d but route %s has read to %d, so new messages would be taken for old ones", s.LogSequence(shard), tail, route, pos)}
}

// setAtLeast moves the sequence on, so that it gives out no number up to n.
func (s Schema) setAtLeast(shard int, n int64) string {
	return s.locked(shard, fmt.Sprintf("SELECT setval(%s, greatest(last_value, %d)) FROM %s", s.sequenceLiteral(shard), n, s.LogSequence(shard)),
		s.sql(fmt.Sprintf(`DELETE FROM {s}.retention WHERE shard = %d`, shard))) // it speaks of the numbers before
}

// lower gives numbers that are too high back: every route reads again what has
// one, and is still in the log.
func (s Schema) lower(shard int) string {
	far := fmt.Sprint(int64(FarNumber))
	return s.locked(shard,
		s.logSQL(fmt.Sprintf(`SELECT setval(%s, greatest((SELECT max(seq) FROM {log} WHERE seq < %[2]s), (SELECT max(seq) FROM {s}.parked WHERE shard = %[3]d AND seq < %[2]s), 1))`, s.sequenceLiteral(shard), far, shard), shard),
		s.logSQL(fmt.Sprintf(`UPDATE {s}.cursor SET pos = least(pos, last_value), started = least(started, last_value), topics_from = least(topics_from, last_value), unsettled = '{}', token = gen_random_uuid() FROM {seq} WHERE shard = %d`, shard), shard),
		s.logSQL(fmt.Sprintf(`DELETE FROM {s}.gap WHERE shard = %d`, shard), shard),
		s.logSQL(fmt.Sprintf(`DELETE FROM {s}.retention WHERE shard = %d`, shard), shard),
		s.logSQL(fmt.Sprintf(`UPDATE {log} AS t SET seq = n.seq, xid = DEFAULT FROM (SELECT l.seq AS old, nextval(%s) AS seq FROM (SELECT * FROM {log} ORDER BY seq) AS l WHERE l.seq >= %s) AS n WHERE t.seq = n.old`, s.sequenceLiteral(shard), far), shard))
}
