package poll

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgstore"
)

// binaryResults asks for every column in PostgreSQL's binary format, whose
// values the decoder takes as they are: scanning them one by one through pgx
// takes longer than reading them. Pools that use the simple protocol ignore it,
// and get text.
var binaryResults = pgx.QueryResultFormats{pgx.BinaryFormatCode}

// Columns of readSQL.
const (
	colSeq = iota
	colTopic
	colID
	colKey
	colType
	colContentType
	colHeaders
	colPayload
	colCreatedAt
	colNotBefore
	colExpires
	colXid // where it was asked for
)

// decoder turns the rows of readSQL into deliveries. It is for one statement at
// a time.
type decoder struct {
	found  found
	now    time.Time // on the server's clock
	sorted bool
	bytes  int
	// average is how many bytes a row of the last page had.
	average int

	topics, types, contentTypes interner
}

// begin takes note that up to n rows will come.
func (d *decoder) begin(n int) {
	d.found, d.sorted, d.bytes, d.now = found{}, true, 0, time.Time{}
	d.found.rows = make([]relay.Delivery, 0, min(n, 1024))
}

// fits is how many rows to ask for, if they are as large as the last ones.
func (d *decoder) fits() int { return max(1, relay.PageBytes/4*3/max(d.average, 1)) }

// full reports whether the rest is to be left for another statement.
func (d *decoder) full() bool {
	return d.bytes >= relay.PageBytes && d.sorted && d.found.seen != nil
}

// end returns what came, in order of number.
func (d *decoder) end() found {
	f := d.found
	d.found = found{}
	if len(f.rows) > 0 {
		d.average = d.bytes / len(f.rows)
	}
	if !d.sorted { // nothing promises that a UNION ALL keeps its parts' order
		slices.SortFunc(f.rows, func(a, b relay.Delivery) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	for i := range f.rows {
		f.rows[i].State = d.state(&f.rows[i].Message)
	}
	return f
}

// state is decided by the server's clock. No message was created later than
// that, whatever somebody wrote into created_at: the relay relies on it.
func (d *decoder) state(m *outbox.Message) outbox.State {
	if m.CreatedAt.After(d.now) {
		m.CreatedAt = d.now
	}
	switch {
	case !m.Expires.IsZero() && !m.Expires.After(d.now):
		return outbox.StateExpired
	case m.NotBefore.After(d.now):
		return outbox.StateScheduled
	default:
		return outbox.StatePending
	}
}

// row takes the current row in.
func (d *decoder) row(rows pgx.Rows) error {
	if fields := rows.FieldDescriptions(); fields[colSeq].Format != pgx.BinaryFormatCode {
		return d.scan(rows, len(fields) > colXid)
	}
	values := rows.RawValues()
	seq, err := number(values[colSeq])
	if err != nil {
		return err
	}
	created, err := timestamp(values[colCreatedAt])
	if err != nil {
		return fmt.Errorf("created_at of number %d: %w", seq, err)
	}
	if seq == 0 {
		return d.snapshot(string(values[colTopic]), created)
	}
	m := d.next(seq)
	m.CreatedAt = created
	if copy(m.ID[:], values[colID]) != len(m.ID) {
		return fmt.Errorf("id of number %d has %d bytes", seq, len(values[colID]))
	}
	m.Topic = d.topics.string(values[colTopic])
	m.Type = d.types.string(values[colType])
	m.ContentType = d.contentTypes.string(values[colContentType])
	if key := values[colKey]; len(key) > 0 {
		m.Key = string(key)
	}
	m.Payload = append(make([]byte, 0, len(values[colPayload])), values[colPayload]...)
	if text := values[colHeaders]; text != nil {
		m.Headers = pgstore.Headers(string(text))
	}
	if m.NotBefore, err = timestamp(values[colNotBefore]); err != nil {
		return fmt.Errorf("not_before of number %d: %w", seq, err)
	}
	if m.Expires, err = timestamp(values[colExpires]); err != nil {
		return fmt.Errorf("expires of number %d: %w", seq, err)
	}
	if len(values) > colXid {
		xid, err := number(values[colXid])
		if err != nil {
			return err
		}
		d.setXid(seq, uint64(xid))
	}
	d.bytes += len(m.Payload) + len(values[colHeaders])
	return nil
}

// scan is row for values that are text.
func (d *decoder) scan(rows pgx.Rows, withXid bool) error {
	var (
		seq                int64
		xid                uint64
		m                  outbox.Message
		headers            []byte
		notBefore, expires pgtype.Timestamptz
		columns            = []any{&seq, &m.Topic, (*[16]byte)(&m.ID), &m.Key, &m.Type, &m.ContentType, &headers, &m.Payload, &m.CreatedAt, &notBefore, &expires}
	)
	if withXid {
		columns = append(columns, &xid)
	}
	if err := rows.Scan(columns...); err != nil {
		return err
	}
	if seq == 0 {
		return d.snapshot(m.Topic, m.CreatedAt)
	}
	m.NotBefore, m.Expires = notBefore.Time, expires.Time
	if headers != nil {
		m.Headers = pgstore.Headers(string(headers))
	}
	*d.next(seq) = m
	if withXid {
		d.setXid(seq, xid)
	}
	d.bytes += len(m.Payload) + len(headers)
	return nil
}

func (d *decoder) snapshot(text string, now time.Time) error {
	s, err := parseSnapshot(text)
	d.found.seen, d.now = &s, now
	return err
}

// next is the message of the next row.
func (d *decoder) next(seq int64) *outbox.Message {
	rows := d.found.rows
	if len(rows) > 0 && rows[len(rows)-1].Seq >= seq {
		d.sorted = false
	}
	rows = append(rows, relay.Delivery{Seq: seq})
	d.found.rows = rows
	return &rows[len(rows)-1].Message
}

func (d *decoder) setXid(seq int64, xid uint64) {
	if d.found.xids == nil {
		d.found.xids = make(map[int64]uint64)
	}
	d.found.xids[seq] = xid
}

// number reads a bigint or an xid8.
func number(value []byte) (int64, error) {
	if len(value) != 8 {
		return 0, fmt.Errorf("a number of %d bytes", len(value))
	}
	return int64(binary.BigEndian.Uint64(value)), nil
}

// y2k is where PostgreSQL's timestamps count from.
var y2k = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// timestamp reads a timestamptz: microseconds since 2000, where the ends of
// the range stand for infinity (PostgreSQL's datatype/timestamp.h). Null is the
// zero time.
func timestamp(value []byte) (time.Time, error) {
	if value == nil {
		return time.Time{}, nil
	}
	n, err := number(value)
	if err != nil {
		return time.Time{}, err
	}
	if n == math.MaxInt64 || n == math.MinInt64 {
		return time.Time{}, errors.New("it is infinite")
	}
	return time.UnixMicro(y2k + n).UTC(), nil
}

// interner keeps one copy of texts that are the same in most messages.
type interner struct {
	last  string
	known map[string]string
}

// maxInterned bounds how many an interner keeps; then it begins anew.
const maxInterned = 1000

func (n *interner) string(text []byte) string {
	if string(text) == n.last {
		return n.last
	}
	known, ok := n.known[string(text)]
	if !ok {
		if n.known == nil || len(n.known) >= maxInterned {
			n.known = make(map[string]string)
		}
		known = string(text)
		n.known[known] = known
	}
	n.last = known
	return known
}
