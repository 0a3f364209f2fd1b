package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

const (
	// A blocked message without a copy is described by the log.
	scanColumns = ` n.seq, coalesce(l.id, p.id), coalesce(l.topic, p.topic), coalesce(l.key, p.key), coalesce(l.type, p.type), coalesce(l.created_at, p.created_at),
	coalesce(l.not_before, p.not_before), coalesce(l.expires, p.expires), p.state, coalesce(p.attempts, 0), coalesce(p.error, ''), p.due, p.changed_at, coalesce(p.state = 'failed' AND p.closes AND p.due IS NULL, 0), coalesce(p.replay, 0) `

	scanJoins = ` LEFT JOIN {log} AS l ON l.seq = n.seq LEFT JOIN postrider_parked AS p ON p.route = ?1 AND p.shard = ?2 AND p.seq = n.seq ORDER BY n.seq`

	// What is in the log, and what is parked and no longer in it.
	// ?1 route, ?2 shard, ?3 after which number, ?4 the last one, ?5 how many.
	sqlScanLog = `SELECT` + scanColumns + `FROM (
	SELECT seq FROM {log} WHERE seq > ?3 AND seq <= ?4 UNION
	SELECT seq FROM postrider_parked WHERE route = ?1 AND shard = ?2 AND seq > ?3 AND seq <= ?4 ORDER BY seq LIMIT ?5) AS n` + scanJoins

	// Parked messages of one state. ?6 the state.
	sqlScanParked = `SELECT` + scanColumns + `FROM (
	SELECT seq FROM postrider_parked WHERE route = ?1 AND shard = ?2 AND seq > ?3 AND seq <= ?4 AND state = ?6 ORDER BY seq LIMIT ?5) AS n` + scanJoins

	sqlWhereItStands = `SELECT pos, unsettled, started, topics, topics_from FROM postrider_cursor WHERE route = ? AND shard = ?`
	sqlFirstReturned = `SELECT min(seq) FROM postrider_parked WHERE route = ? AND state = 'pending' AND shard = ?`
)

// maxNumber is greater than any number.
const maxNumber = 1 << 62

// onLog fills a statement on one shard's log.
func onLog(statement string, shard int) string {
	return strings.ReplaceAll(statement, "{log}", logTable(shard))
}

// position is how far a route has read a shard, as people need to know it.
type position struct {
	pos, started, topicsFrom int64
	unsettled                numset.Set
	takes                    func(topic string) bool
}

func readPosition(ctx context.Context, tx *sql.Tx, route string, shard int) (p position, err error) {
	var unsettled, topics string
	err = tx.QueryRowContext(ctx, sqlWhereItStands, route, shard).Scan(&p.pos, &unsettled, &p.started, &topics, &p.topicsFrom)
	if err != nil {
		return p, err
	}
	if p.unsettled, err = decodeNumbers(unsettled); err != nil {
		return p, err
	}
	patterns, err := decodeTopics(topics)
	if err != nil {
		return p, err
	}
	p.takes, err = relay.Matcher(patterns)
	return p, err
}

// Scan is as admin.Reader says.
func (a *Admin) Scan(ctx context.Context, s admin.Scan) (w admin.Window, err error) {
	w = admin.Window{Last: s.After}
	fits, err := fitting(s.Filter)
	if err == nil {
		err = a.read(ctx, func(tx *sql.Tx) error {
			p, err := readPosition(ctx, tx, s.Route, s.Shard)
			if errors.Is(err, sql.ErrNoRows) {
				return nil // the route has not begun with this shard
			}
			if err != nil {
				return err
			}
			return scanWindow(ctx, tx, s, &p, fits, &w)
		})
	}
	if err != nil {
		return admin.Window{}, fmt.Errorf("sqlitestore: list messages of shard %d of route %q: %w", s.Shard, s.Route, err)
	}
	return w, nil
}

func scanWindow(ctx context.Context, tx *sql.Tx, s admin.Scan, p *position, fits func(*admin.Item) bool, w *admin.Window) error {
	from, to := s.After, cmp.Or(s.UpTo, maxNumber)
	switch f := &s.Filter; {
	case f.ParkedOnly():
	case f.Only(outbox.StatePending):
		var returned sql.NullInt64
		if err := tx.QueryRowContext(ctx, sqlFirstReturned, s.Route, s.Shard).Scan(&returned); err != nil {
			return err
		}
		low := p.pos
		if r := p.unsettled.Ranges(); len(r) > 0 {
			low = min(low, r[0].First-1)
		}
		if returned.Valid {
			low = min(low, returned.Int64-1)
		}
		from = max(from, low)
	case f.Only(outbox.StateSent, admin.Unknown):
		to = min(to, p.pos)
	}
	if from >= to {
		return nil
	}
	items, err := scanRows(ctx, tx, s, p, from, to)
	if err != nil {
		return err
	}
	w.Looked, w.More = len(items), len(items) >= s.Look
	for _, item := range items {
		w.Last = item.Seq
		if item.State == "" || !fits(&item) {
			continue
		}
		w.Items = append(w.Items, item)
		if len(w.Items) == s.Limit {
			w.More = true
			break
		}
	}
	return nil
}

// scanRows reads a window; a message that the route does not take has no state.
func scanRows(ctx context.Context, tx *sql.Tx, s admin.Scan, p *position, from, to int64) (items []admin.Item, err error) {
	each := func(scan func(...any) error) error {
		item, err := scanItem(scan, p)
		if err != nil {
			return fmt.Errorf("number %d: %w", item.Seq, err)
		}
		item.Route, item.Shard = s.Route, s.Shard
		items = append(items, item)
		return nil
	}
	if !s.Filter.ParkedOnly() {
		err = eachRow(ctx, tx, onLog(sqlScanLog, s.Shard), []any{s.Route, s.Shard, from, to, s.Look}, each)
		return items, err
	}
	for _, state := range s.Filter.States {
		if err := eachRow(ctx, tx, onLog(sqlScanParked, s.Shard), []any{s.Route, s.Shard, from, to, s.Look, state}, each); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(items, func(a, b admin.Item) int { return cmp.Compare(a.Seq, b.Seq) })
	items = slices.CompactFunc(items, func(a, b admin.Item) bool { return a.Seq == b.Seq })
	return items[:min(len(items), s.Look)], nil
}

func scanItem(scan func(...any) error, p *position) (item admin.Item, err error) {
	var id []byte
	var topic, key, typ, state sql.NullString
	var created, notBefore, expires, due, changed sql.NullInt64
	err = scan(&item.Seq, &id, &topic, &key, &typ, &created, &notBefore, &expires, &state, &item.Attempts, &item.Error, &due, &changed, &item.Holds, &item.Replay)
	if err != nil {
		return item, err
	}
	if id != nil { // nil: a blocked one that the log has lost
		if item.ID, err = uuid.FromBytes(id); err != nil {
			return item, err
		}
	}
	item.Topic, item.Key, item.Type, item.CreatedAt = topic.String, key.String, typ.String, fromMicros(created)
	item.NotBefore, item.Expires, item.DueAt, item.ChangedAt = fromMicros(notBefore), fromMicros(expires), fromMicros(due), fromMicros(changed)
	switch n := item.Seq; {
	case state.Valid:
		item.State = outbox.State(state.String)
		if item.State == outbox.StateFailed || item.State == outbox.StateDiscarded {
			item.DueAt = time.Time{} // due for the relay to hear what an operator did
		}
	case n <= p.started || !p.takes(item.Topic):
	case n > p.pos || p.unsettled.Has(n):
		item.State = outbox.StatePending
	case n > p.topicsFrom:
		item.State = outbox.StateSent
	default:
		item.State = admin.Unknown
	}
	return item, nil
}

// fitting compiles a filter.
func fitting(f admin.Filter) (func(*admin.Item) bool, error) {
	takes := func(string) bool { return true }
	if f.Topic != "" {
		var err error
		if takes, err = relay.Matcher([]string{f.Topic}); err != nil {
			return nil, err
		}
	}
	return func(i *admin.Item) bool {
		return (len(f.States) == 0 || slices.Contains(f.States, i.State)) && takes(i.Topic) && (f.Key == nil || *f.Key == i.Key) &&
			(f.Type == "" || f.Type == i.Type) && (f.Since.IsZero() || !i.CreatedAt.Before(f.Since)) && (f.Until.IsZero() || i.CreatedAt.Before(f.Until))
	}, nil
}
