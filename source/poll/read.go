package poll

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgstore"
)

// errWentBack means that the database has lost commits that may have been read,
// or is another one: the state is to be loaded anew.
var errWentBack = errors.New("the database lost this relay's mark (it crashed or failed over): loading the state anew")

// readSQL is one statement, so that its rows and its snapshot belong together,
// and it runs in a transaction of its own that has no id yet. The row with the
// snapshot, which also tells the server's clock, is absent on a standby and
// where the lease's mark is gone; then come missing numbers that are looked
// for, then numbers of a range. Nothing is computed for a message's row, since
// that would cost as much as reading it.
const readSQL = `
	SELECT 0::bigint, pg_current_snapshot()::text, '00000000-0000-0000-0000-000000000000'::uuid, '', '', '', NULL::json, ''::bytea,
		clock_timestamp(), NULL::timestamptz, NULL::timestamptz{no xid}
	WHERE NOT pg_is_in_recovery() AND EXISTS (SELECT FROM {mark} WHERE route = $1 AND shard = $2 AND token = $3::text::uuid){missing}
	UNION ALL (SELECT {columns} FROM {log} WHERE seq BETWEEN $4 AND $5 ORDER BY seq LIMIT $6)`

// missingSQL is left out where nothing is missing. Without it the server takes a
// plan for any values after five pages; with it, it mostly plans each page anew,
// which takes longer than reading a few hundred rows.
const missingSQL = `
	UNION ALL (SELECT {columns} FROM {log} WHERE seq = ANY ($7::bigint[]) ORDER BY seq)`

// readColumns of a message; the row with the snapshot has it in place of the
// topic. {xid} is the message's transaction, only where it is needed.
const readColumns = `seq, topic, id, key, type, content_type, headers, payload, created_at, not_before, expires{xid}`

// whySQL tells why the row with the snapshot was absent.
const whySQL = `SELECT pg_is_in_recovery(), EXISTS (SELECT FROM {cursor} WHERE route = $1 AND shard = $2 AND token = $3::text::uuid)`

// reader reads one shard's log under one lease.
type reader struct {
	db       pgstore.DB
	route    string
	shard    int
	token    uuid.UUID
	pageSQL  string // a range alone
	gapsSQL  string // and missing numbers
	probeSQL string // with transaction ids
	whySQL   string
	decoder  decoder
}

func newReader(db pgstore.DB, schema pgstore.Schema, route string, shard int, token uuid.UUID) *reader {
	fill := func(missing, noXid, xid string) string {
		return strings.NewReplacer(
			"{columns}", strings.ReplaceAll(readColumns, "{xid}", xid),
			"{no xid}", noXid,
			"{log}", schema.Log(shard),
			"{mark}", schema.Table("mark"),
		).Replace(strings.ReplaceAll(readSQL, "{missing}", missing))
	}
	return &reader{db: db, route: route, shard: shard, token: token,
		pageSQL: fill("", "", ""), gapsSQL: fill(missingSQL, "", ""), probeSQL: fill(missingSQL, ", '0'::xid8", ", xid"),
		whySQL: strings.ReplaceAll(whySQL, "{cursor}", schema.Table("cursor"))}
}

// found is what one statement saw.
type found struct {
	rows []relay.Delivery // in order of number
	xids map[int64]uint64 // their transactions by number, where asked for
	seen *snapshot
	more bool // the range may hold more
	// cut: the rows are the first ones of what was asked for, and the rest was
	// not looked for, since all of them would take too much memory.
	cut bool
}

// read looks for the numbers, and for at most limit numbers of the range, and
// returns what was there, with transaction ids if they are asked for.
func (r *reader) read(ctx context.Context, numbers []int64, in numset.Range, limit int, withXids bool) (found, error) {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	limit = min(limit, r.decoder.fits())
	args := []any{binaryResults, r.route, r.shard, r.token.String(), in.First, in.Last, limit}
	sql := r.pageSQL
	if withXids || len(numbers) > 0 {
		if sql = r.gapsSQL; withXids {
			sql = r.probeSQL
		}
		if numbers == nil {
			numbers = []int64{} // null is no array
		}
		args = append(args, numbers)
	}
	rows, err := r.db.Query(reading, sql, args...)
	if err != nil {
		return found{}, fmt.Errorf("read the log of shard %d: %w", r.shard, err)
	}
	defer rows.Close()
	r.decoder.begin(len(numbers) + limit)
	for rows.Next() {
		if err := r.decoder.row(rows); err != nil {
			return found{}, fmt.Errorf("read the log of shard %d: %w", r.shard, err)
		}
		if r.decoder.full() {
			cancel() // costs the connection, but not the memory and the time for the rest
			f := r.decoder.end()
			f.more, f.cut = true, true
			return f, nil
		}
	}
	if err := rows.Err(); err != nil {
		return found{}, fmt.Errorf("read the log of shard %d: %w", r.shard, err)
	}
	f := r.decoder.end()
	if f.seen == nil {
		return found{}, r.whyNothing(ctx)
	}
	first, _ := slices.BinarySearchFunc(f.rows, in.First, func(d relay.Delivery, n int64) int { return cmp.Compare(d.Seq, n) })
	f.more = limit > 0 && len(f.rows)-first == limit
	return f, nil
}

func (r *reader) whyNothing(ctx context.Context) error {
	var standby, ours bool
	err := r.db.QueryRow(ctx, r.whySQL, r.route, r.shard, r.token.String()).Scan(&standby, &ours)
	switch {
	case err != nil:
		return fmt.Errorf("read the log of shard %d: %w", r.shard, err)
	case standby:
		return pgstore.ErrStandby
	case !ours:
		return relay.ErrFenced
	}
	return errWentBack
}

// writersSQL lists the transactions that hold the lock of an INSERT on the log,
// prepared ones included. The lock is held from before the first number is
// drawn until the transaction has ended. pg_locks prints 32 bits of an id.
const writersSQL = `SELECT x.transactionid::text::bigint FROM pg_catalog.pg_locks AS l
	JOIN pg_catalog.pg_locks AS x ON x.virtualtransaction = l.virtualtransaction AND x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock' AND x.granted
	WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.relation = $1::text::regclass
		AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())`

// writers are the low 32 bits of the ids of all transactions that may have
// drawn a number and are still open.
func (r *reader) writers(ctx context.Context, log string) ([]uint32, error) {
	rows, err := r.db.Query(ctx, writersSQL, log)
	if err != nil {
		return nil, fmt.Errorf("ask who writes to the log of shard %d: %w", r.shard, err)
	}
	xids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("ask who writes to the log of shard %d: %w", r.shard, err)
	}
	out := make([]uint32, len(xids))
	for i, xid := range xids {
		out[i] = uint32(xid)
	}
	return out, nil
}

// olderThan compares an id's low 32 bits with a whole id that is less than 2^31
// transactions away from it.
func olderThan(low uint32, xid uint64) bool { return int32(low-uint32(xid)) < 0 }
