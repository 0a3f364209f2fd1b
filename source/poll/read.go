package poll

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgstore"
)

// errWentBack means that the database has lost commits that may have been read,
// or is another one: the state is to be loaded anew.
var errWentBack = errors.New("the database lost this relay's mark (it crashed or failed over): loading the state anew")

// errStandby: on a standby every number that is not replayed yet looks dead.
var errStandby = errors.New("the database is a standby: the relay needs the primary")

// readSQL is one statement, so that its rows and its snapshot belong together,
// and it runs in a transaction of its own that has no id yet. The row with the
// snapshot is absent on a standby and where the lease's mark is gone; then come
// missing numbers that are looked for, then numbers of a range.
const readSQL = `
	SELECT 0::bigint, pg_current_snapshot()::text, '', 0, '00000000-0000-0000-0000-000000000000'::uuid, '', '', '', '',
		NULL::text, ''::bytea, 'epoch'::timestamptz, NULL::timestamptz, NULL::timestamptz
	WHERE NOT pg_is_in_recovery() AND EXISTS (SELECT FROM {mark} WHERE route = $1 AND shard = $2 AND token = $3::text::uuid)
	UNION ALL (SELECT {columns} FROM {log} WHERE seq = ANY ($4::bigint[]) ORDER BY seq)
	UNION ALL (SELECT {columns} FROM {log} WHERE seq BETWEEN $5 AND $6 ORDER BY seq LIMIT $7)`

// readColumns of a message; the second is for the snapshot alone. The state is decided by the server's clock: 1 is
// not due yet, 2 is expired. No message was created later than that clock's now, whatever somebody wrote into
// created_at: the relay relies on it. {xid} is its transaction, only where it is needed.
const readColumns = `seq, '', {xid}, CASE WHEN expires <= clock_timestamp() THEN 2 WHEN not_before > clock_timestamp() THEN 1 ELSE 0 END,
		id, topic, key, type, content_type, headers::text, payload, least(created_at, clock_timestamp()), not_before, expires`

// whySQL tells why the row with the snapshot was absent.
const whySQL = `SELECT pg_is_in_recovery(), EXISTS (SELECT FROM {cursor} WHERE route = $1 AND shard = $2 AND token = $3::text::uuid)`

// reader reads one shard's log under one lease.
type reader struct {
	db       pgstore.DB
	route    string
	shard    int
	token    uuid.UUID
	pageSQL  string
	probeSQL string // with transaction ids
	whySQL   string
}

func newReader(db pgstore.DB, schema pgstore.Schema, route string, shard int, token uuid.UUID) *reader {
	fill := func(xid string) string {
		return strings.NewReplacer(
			"{columns}", strings.ReplaceAll(readColumns, "{xid}", xid),
			"{log}", schema.Log(shard),
			"{mark}", schema.Table("mark"),
		).Replace(readSQL)
	}
	return &reader{db: db, route: route, shard: shard, token: token, pageSQL: fill("''"), probeSQL: fill("xid::text"),
		whySQL: strings.ReplaceAll(whySQL, "{cursor}", schema.Table("cursor"))}
}

// row is a message of the log.
type row struct {
	relay.Delivery
	xid uint64 // of its transaction, where it was asked for
}

// read looks for the numbers, and for at most limit numbers of the range, and
// returns what was there in order of number, with the snapshot that it was
// seen in.
func (r *reader) read(ctx context.Context, sql string, numbers []int64, in numset.Range, limit int) ([]row, *snapshot, error) {
	if numbers == nil {
		numbers = []int64{}
	}
	rows, err := r.db.Query(ctx, sql, r.route, r.shard, r.token.String(), numbers, in.First, in.Last, limit)
	if err != nil {
		return nil, nil, fmt.Errorf("read the log of shard %d: %w", r.shard, err)
	}
	defer rows.Close()
	out := make([]row, 0, len(numbers)+min(limit, 256))
	var seen *snapshot
	for rows.Next() {
		var (
			row           row
			snapshot, xid string
			state         int32
			null          pgstore.Nullables
		)
		m := &row.Message
		err := rows.Scan(&row.Seq, &snapshot, &xid, &state, (*[16]byte)(&m.ID), &m.Topic, &m.Key, &m.Type, &m.ContentType, &null.Headers, &m.Payload, &m.CreatedAt, &null.NotBefore, &null.Expires)
		if err != nil {
			return nil, nil, fmt.Errorf("read the log of shard %d: %w", r.shard, err)
		}
		if snapshot != "" {
			s, err := parseSnapshot(snapshot)
			if err != nil {
				return nil, nil, err
			}
			seen = &s
			continue
		}
		row.State = states[state]
		null.Into(m)
		if xid != "" {
			if row.xid, err = strconv.ParseUint(xid, 10, 64); err != nil {
				return nil, nil, fmt.Errorf("read the log of shard %d: transaction of number %d: %w", r.shard, row.Seq, err)
			}
		}
		out = append(out, row)
	}
	if err := rows.Err(); err != nil {
		return nil, nil, fmt.Errorf("read the log of shard %d: %w", r.shard, err)
	}
	if seen == nil {
		return nil, nil, r.whyNothing(ctx)
	}
	slices.SortFunc(out, func(a, b row) int { return cmp.Compare(a.Seq, b.Seq) })
	return out, seen, nil
}

var states = [...]outbox.State{outbox.StatePending, outbox.StateScheduled, outbox.StateExpired}

func (r *reader) whyNothing(ctx context.Context) error {
	var standby, ours bool
	err := r.db.QueryRow(ctx, r.whySQL, r.route, r.shard, r.token.String()).Scan(&standby, &ours)
	switch {
	case err != nil:
		return fmt.Errorf("read the log of shard %d: %w", r.shard, err)
	case standby:
		return errStandby
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
