package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/headers"
	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

const (
	// minInterval and maxInterval are how often a waiting lease looks for
	// commits: often when there was one lately.
	minInterval = 2 * time.Millisecond
	maxInterval = 25 * time.Millisecond
	// pageSize is how many rows one statement reads.
	pageSize = 500
	// recheck is how long a lease waits for something to come due before it asks
	// for the time again, in case the clock was set.
	recheck = time.Second
)

// found is what one look brought.
type found struct {
	deliveries []relay.Delivery
	// again: look again at once, since there was something, but of other topics,
	// or a settle came between.
	again bool
	// due is how long until a parked message falls due; negative: none will.
	due time.Duration
}

// Receive hands out up to max messages, from the parked set and from the log.
func (l *lease) Receive(ctx context.Context, max int) ([]relay.Delivery, error) {
	if max <= 0 {
		return nil, fmt.Errorf("sqlitestore: receive: at most %d deliveries: ask for one or more", max)
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		before, err := l.store.watch.mark(ctx)
		if err != nil {
			return nil, l.receiveError(ctx, err)
		}
		got, err := l.look(ctx, max)
		if err != nil {
			return nil, l.receiveError(ctx, err)
		}
		if len(got.deliveries) > 0 {
			l.interval = minInterval
			return got.deliveries, nil
		}
		if got.again {
			continue
		}
		if err := l.wait(ctx, before, got.due); err != nil {
			return nil, l.receiveError(ctx, err)
		}
	}
}

// receiveError is the context's end if that is why err came.
func (l *lease) receiveError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("sqlitestore: receive from shard %d of route %q: %w", l.claim.Shard, l.claim.Route, err)
}

// wait returns when something was committed, or a parked message may be due.
func (l *lease) wait(ctx context.Context, before mark, due time.Duration) error {
	end := time.Now().Add(recheck)
	if due >= 0 && due < recheck {
		end = time.Now().Add(due)
	}
	for {
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(min(l.interval, left))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		l.interval = min(l.interval*3/2, maxInterval)
		now, err := l.store.watch.mark(ctx)
		if err != nil || now != before {
			return err
		}
	}
}

// look takes what is there now. The parked set and the log take turns in being
// first, so that neither keeps the other waiting for long. What the first one
// gave is handed out even if the second one fails.
func (l *lease) look(ctx context.Context, limit int) (found, error) {
	first, second := l.lookLog, l.lookParked
	l.parkedFirst = !l.parkedFirst
	if l.parkedFirst {
		first, second = second, first
	}
	got, err := first(ctx, limit)
	if err != nil || len(got.deliveries) == limit || pageFull(got.deliveries) {
		return got, err
	}
	more, err := second(ctx, limit-len(got.deliveries))
	if err != nil && len(got.deliveries) > 0 {
		return got, nil // the next look will meet the error
	}
	return found{
		deliveries: append(got.deliveries, more.deliveries...),
		again:      got.again || more.again,
		due:        max(got.due, more.due), // the log knows none,
	}, err
}

// lookLog reads messages of the log: first what was unsettled when the lease was
// taken, then what is new.
func (l *lease) lookLog(ctx context.Context, limit int) (found, error) {
	l.mu.Lock()
	backlog, pos := l.backlog.Clone(), l.pos
	l.mu.Unlock()

	limit = min(limit, pageSize)
	if backlog.Empty() {
		rows, err := l.readMessages(ctx, nil, l.sql.readNew, pos, limit)
		if err != nil || len(rows) == 0 {
			return found{due: -1}, err
		}
		ds := readable(l.advance(rows))
		return found{deliveries: ds, again: len(ds) == 0, due: -1}, nil
	}
	var (
		rows []row
		err  error
	)
	last := pos
	for _, r := range backlog.Ranges() {
		if rows, err = l.readMessages(ctx, rows, l.sql.readRange, r.First, r.Last, limit-len(rows)); err != nil {
			return found{}, err
		}
		if len(rows) == limit || bytesOf(rows) >= relay.PageBytes {
			last = rows[len(rows)-1].Seq
			break
		}
	}
	ds := readable(l.catchUp(rows, last))
	return found{deliveries: ds, again: len(ds) == 0, due: -1}, nil
}

// advance moves pos over new rows and returns those whose topic matches.
func (l *lease) advance(rows []row) []row {
	l.mu.Lock()
	defer l.mu.Unlock()
	ds := rows[:0]
	for _, d := range rows {
		l.pos = d.Seq
		if l.match(d.Message.Topic) {
			l.unsettled.Add(d.Seq, d.Seq)
			ds = append(ds, d)
		}
	}
	return ds
}

// catchUp takes the numbers up to last off the backlog, and off the unsettled
// ones what is not there or does not match any more.
func (l *lease) catchUp(rows []row, last int64) []row {
	l.mu.Lock()
	defer l.mu.Unlock()
	var wanted numset.Set
	ds := rows[:0]
	for _, d := range rows {
		if l.match(d.Message.Topic) {
			d.Again = d.Seq <= l.known
			wanted.Add(d.Seq, d.Seq)
			ds = append(ds, d)
		}
	}
	read := l.backlog.UpTo(last)
	for _, r := range read.Ranges() {
		l.backlog.Remove(r.First, r.Last)
		l.unsettled.Remove(r.First, r.Last)
	}
	for _, r := range wanted.Ranges() {
		l.unsettled.Add(r.First, r.Last)
	}
	return ds
}

const (
	// sqlDueParked lists what is due, in order. ?1 route, ?2 shard.
	sqlDueParked = `SELECT arrival, seq FROM postrider_parked
	WHERE route = ?1 AND shard = ?2 AND due <= ` + sqlNow + ` ORDER BY due, arrival`
	// sqlNextDue is how many microseconds remain until the next is due.
	sqlNextDue = `SELECT min(due) - ` + sqlNow + ` FROM postrider_parked WHERE route = ?1 AND shard = ?2 AND due > ` + sqlNow
)

// lookParked takes parked messages that are due and that this lease has not in
// hand already.
func (l *lease) lookParked(ctx context.Context, limit int) (found, error) {
	l.mu.Lock()
	settles := l.settles
	l.mu.Unlock()

	arrivals, err := l.dueArrivals(ctx, min(limit, pageSize))
	if err != nil {
		return found{}, err
	}
	if len(arrivals) == 0 {
		var micros sql.NullInt64
		if err := l.store.reads.QueryRowContext(ctx, sqlNextDue, l.claim.Route, l.claim.Shard).Scan(&micros); err != nil {
			return found{}, fmt.Errorf("ask when the next parked message is due: %w", err)
		}
		if !micros.Valid {
			return found{due: -1}, nil
		}
		return found{due: time.Duration(min(micros.Int64, recheck.Microseconds())) * time.Microsecond}, nil
	}
	list, err := json.Marshal(arrivals)
	if err != nil {
		return found{}, fmt.Errorf("encode a list of numbers: %w", err)
	}
	rows, err := l.readMessages(ctx, nil, l.sql.readParked, string(list))
	if err != nil {
		return found{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settles != settles {
		return found{again: true, due: -1}, nil // what was read may be settled otherwise by now
	}
	for i := range rows {
		l.out[rows[i].Seq] = true
		rows[i].Again = rows[i].since <= l.taken
	}
	ds := readable(rows)
	return found{deliveries: ds, again: len(ds) == 0, due: -1}, nil
}

// dueArrivals are the arrival numbers of the first due messages not in hand.
func (l *lease) dueArrivals(ctx context.Context, max int) ([]int64, error) {
	rows, err := l.store.reads.QueryContext(ctx, sqlDueParked, l.claim.Route, l.claim.Shard)
	if err != nil {
		return nil, fmt.Errorf("read what is due: %w", err)
	}
	defer rows.Close()
	var arrivals []int64
	for len(arrivals) < max && rows.Next() {
		var arrival, seq int64
		if err := rows.Scan(&arrival, &seq); err != nil {
			return nil, fmt.Errorf("read what is due: %w", err)
		}
		l.mu.Lock()
		inHand := l.out[seq]
		l.mu.Unlock()
		if !inHand {
			arrivals = append(arrivals, arrival)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read what is due: %w", err)
	}
	return arrivals, nil
}

// pageFull reports whether the deliveries have as many bytes as a page may.
func pageFull(ds []relay.Delivery) bool {
	bytes := 0
	for i := range ds {
		bytes += len(ds[i].Message.Payload)
	}
	return bytes >= relay.PageBytes
}

func bytesOf(rows []row) (bytes int) {
	for i := range rows {
		bytes += len(rows[i].Message.Payload)
	}
	return bytes
}

// readMessages appends the rows that a query yields, readable or not, until they
// have the bytes of a page: the rest is for the next look. A query
// with attempts reads parked ones.
func (l *lease) readMessages(ctx context.Context, all []row, query string, args ...any) ([]row, error) {
	rows, err := l.store.reads.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	defer rows.Close()
	parked := query == l.sql.readParked
	for bytes := bytesOf(all); bytes < relay.PageBytes && rows.Next(); {
		r, err := scan(rows, parked)
		if err != nil {
			return nil, fmt.Errorf("read messages: %w", err)
		}
		all = append(all, r)
		bytes += len(r.Message.Payload)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	return all, nil
}

// scan reads a row. It fails only where that is not the row's fault, or where
// the row has no number to be given up by.
func scan(rows *sql.Rows, parked bool) (row, error) {
	var (
		d                            = relay.Delivery{State: outbox.StatePending, Parked: parked}
		m                            = &d.Message
		id                           []byte
		topic, kind, content, header sql.NullString
		notBefore, expires, created  sql.NullInt64
		early, late, gone, closes    bool
		state                        outbox.State
		since                        int64
	)
	columns := []any{&d.Seq, &id, &topic, &m.Key, &kind, &m.Payload, &content, &header, &notBefore, &expires, &created, &early, &late}
	if parked {
		columns = append(columns, &d.Attempts, &gone, &state, &closes, &m.Replay, &since, &d.Arrival)
	}
	if err := rows.Scan(columns...); err != nil {
		return row{}, err
	}
	m.Topic, m.Type, m.ContentType = topic.String, kind.String, content.String
	m.NotBefore, m.Expires, m.CreatedAt = fromMicros(notBefore), fromMicros(expires), fromMicros(created)
	switch {
	case closes:
		d.Place = relay.PlaceKept
	case parked && state != outbox.StateScheduled:
		d.Place = relay.PlaceNone
	}
	switch {
	case state == outbox.StateDiscarded || state == outbox.StateFailed:
		d.State, d.Released = state, state == outbox.StateFailed
		return row{Delivery: d}, nil // without its content, if that is gone
	case gone:
		return row{d, errGone, since}, nil
	case late:
		d.State = outbox.StateExpired
	case early && !parked:
		d.State = outbox.StateScheduled
	}
	var err error
	if m.ID, err = uuid.FromBytes(id); err != nil {
		return row{d, fmt.Errorf("its id is no UUID: %w", err), since}, nil
	}
	if m.Headers, err = headers.Parse(header.String); err != nil {
		return row{d, fmt.Errorf("its headers are no JSON object: %w", err), since}, nil
	}
	return row{d, checkText(m), since}, nil
}
