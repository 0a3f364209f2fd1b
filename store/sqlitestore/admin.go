package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/internal/headers"
	"github.com/postrider/postrider/outbox"
)

// Admin is what operators do with the messages in a file. Safe for concurrent
// use.
type Admin struct{ db *sql.DB }

var _ admin.Store = (*Admin)(nil)

// NewAdmin returns an Admin on a database that was opened with DSN, or for looking
// alone in any other way. It does not create or migrate tables.
func NewAdmin(db *sql.DB) *Admin { return &Admin{db} }

// ErrNoTables means that the tables are missing, or not all there.
var ErrNoTables = errors.New("the outbox tables are missing: create them with 'postrider migrate up'")

// read runs fn in a transaction that sees one state of the file and does not get
// in a writer's way.
func (a *Admin) read(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := a.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // it changed nothing
	return fn(tx)
}

// eachRow runs a query and calls each with every row.
func eachRow(ctx context.Context, q querier, query string, args []any, each func(scan func(...any) error) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

const sqlRoutes = `SELECT route FROM postrider_cursor UNION SELECT name FROM postrider_route
	UNION SELECT j.value FROM postrider_member AS m, json_each(m.routes) AS j WHERE m.expires > ` + sqlNow + ` ORDER BY 1`

// Layout is as admin.Reader says. ErrNoTables if the tables are missing.
func (a *Admin) Layout(ctx context.Context) (admin.Layout, error) {
	var layout admin.Layout
	err := a.read(ctx, func(tx *sql.Tx) error { return readLayout(ctx, tx, &layout) })
	if err != nil {
		return admin.Layout{}, fmt.Errorf("sqlitestore: read the names of the routes: %w", err)
	}
	return layout, nil
}

func readLayout(ctx context.Context, tx *sql.Tx, layout *admin.Layout) error {
	v, err := version(ctx, tx)
	if err != nil {
		return err
	}
	if err := v.Usable(); err != nil {
		return err
	}
	layout.Shards = v.Shards
	var now int64
	if err := tx.QueryRowContext(ctx, "SELECT "+sqlNow).Scan(&now); err != nil {
		return err
	}
	layout.Now = time.UnixMicro(now).UTC()
	return eachRow(ctx, tx, sqlRoutes, nil, func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		layout.Routes = append(layout.Routes, name)
		return err
	})
}

const (
	sqlFindParked = `SELECT DISTINCT shard, seq FROM postrider_parked WHERE id = ?`
	// The log has no index on ids, since it would cost every enqueue.
	sqlFind = `SELECT seq, id = ?1 FROM {log} WHERE seq < ?2 ORDER BY seq DESC LIMIT ?3`

	sqlMessage = `SELECT id, topic, key, type, payload, content_type, headers, not_before, expires, created_at FROM {log} WHERE seq = ?`
	// A copy, wherever there is one.
	sqlParkedMessage = `SELECT id, topic, key, type, payload, content_type, headers, not_before, expires, created_at
	FROM postrider_parked WHERE route IN (SELECT route FROM postrider_cursor) AND shard = ? AND seq = ? AND id IS NOT NULL LIMIT 1`
)

// findPage is how many messages one statement looks at.
const findPage = 100_000

// Find is as admin.Reader says.
func (a *Admin) Find(ctx context.Context, id uuid.UUID) (places []admin.Place, err error) {
	var layout admin.Layout
	err = a.read(ctx, func(tx *sql.Tx) error {
		if err := readLayout(ctx, tx, &layout); err != nil {
			return err
		}
		return eachRow(ctx, tx, sqlFindParked, []any{id[:]}, func(scan func(...any) error) error {
			var p admin.Place
			err := scan(&p.Shard, &p.Seq)
			places = append(places, p)
			return err
		})
	})
	for shard := 0; shard < layout.Shards && len(places) == 0 && err == nil; shard++ {
		places, err = a.findBackwards(ctx, id, shard)
	}
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: look for message %s: %w", id, err)
	}
	return places, nil
}

// findBackwards looks through a shard's log from its end, a page a transaction.
func (a *Admin) findBackwards(ctx context.Context, id uuid.UUID, shard int) (places []admin.Place, err error) {
	before, looked := int64(maxNumber), findPage
	for looked == findPage && err == nil {
		looked = 0
		err = a.read(ctx, func(tx *sql.Tx) error {
			return eachRow(ctx, tx, onLog(sqlFind, shard), []any{id[:], before, findPage}, func(scan func(...any) error) error {
				var is bool
				err := scan(&before, &is)
				looked++
				if is {
					places = append(places, admin.Place{Shard: shard, Seq: before})
				}
				return err
			})
		})
	}
	return places, err
}

// Message is as admin.Reader says.
func (a *Admin) Message(ctx context.Context, at admin.Place) (m outbox.Message, inLog bool, err error) {
	err = a.read(ctx, func(tx *sql.Tx) error {
		inLog = true
		m, err = scanMessage(tx.QueryRowContext(ctx, onLog(sqlMessage, at.Shard), at.Seq))
		if errors.Is(err, sql.ErrNoRows) {
			inLog = false
			m, err = scanMessage(tx.QueryRowContext(ctx, sqlParkedMessage, at.Shard, at.Seq))
		}
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return outbox.Message{}, false, fmt.Errorf("%w: nothing is at %s", admin.ErrNotFound, at)
	}
	if err != nil {
		return outbox.Message{}, false, fmt.Errorf("sqlitestore: read message %s: %w", at, err)
	}
	return m, inLog, nil
}

func scanMessage(row *sql.Row) (m outbox.Message, err error) {
	var id []byte
	var text string
	var notBefore, expires, created sql.NullInt64
	if err := row.Scan(&id, &m.Topic, &m.Key, &m.Type, &m.Payload, &m.ContentType, &text, &notBefore, &expires, &created); err != nil {
		return m, err
	}
	if m.ID, err = uuid.FromBytes(id); err != nil {
		return m, err
	}
	if m.Headers, err = headers.Parse(text); err != nil {
		return m, err
	}
	m.NotBefore, m.Expires, m.CreatedAt = fromMicros(notBefore), fromMicros(expires), fromMicros(created)
	return m, nil
}

const (
	sqlAddAudit = `INSERT INTO postrider_audit (at, who, action, route, filter, count, note) VALUES (` + sqlNow + `, ?, ?, ?, ?, ?, ?) RETURNING id, at`
	sqlRaise    = `UPDATE postrider_audit SET count = count + ? WHERE id = ?`
	sqlAudit    = `SELECT id, at, who, action, route, filter, count, note FROM postrider_audit WHERE ?1 = 0 OR id < ?1 ORDER BY id DESC LIMIT ?2`
)

// Change is as admin.Changer says.
func (a *Admin) Change(ctx context.Context, op admin.Operation, entry *admin.Entry) (changed []int64, err error) {
	written := *entry
	err = inTx(ctx, a.db, func(tx *sql.Tx) error {
		if changed, err = Operate(ctx, tx, op); err != nil || len(changed) == 0 {
			return err
		}
		return record(ctx, tx, &written, int64(len(changed)))
	})
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: %s messages of shard %d of route %q: %w", op.Action, op.Shard, op.Route, err)
	}
	*entry = written
	return changed, nil
}

// record adds the entry, or raises its count.
func record(ctx context.Context, tx *sql.Tx, entry *admin.Entry, count int64) error {
	entry.Count += count
	if entry.ID != 0 {
		result, err := tx.ExecContext(ctx, sqlRaise, count, entry.ID)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(errors.New("the record of this action is gone"), err)
		}
		return nil
	}
	var filter sql.NullString
	if entry.Filter != nil {
		text, err := json.Marshal(entry.Filter)
		if err != nil {
			return err
		}
		filter = sql.NullString{String: string(text), Valid: true}
	}
	var at int64
	err := tx.QueryRowContext(ctx, sqlAddAudit, entry.By, entry.Action, entry.Route, filter, count, entry.Note).Scan(&entry.ID, &at)
	entry.At = time.UnixMicro(at).UTC()
	return err
}

// Audit is as admin.Auditor says.
func (a *Admin) Audit(ctx context.Context, before int64, limit int) ([]admin.Entry, error) {
	entries := []admin.Entry{}
	err := a.read(ctx, func(tx *sql.Tx) error {
		return eachRow(ctx, tx, sqlAudit, []any{before, limit}, func(scan func(...any) error) error {
			var e admin.Entry
			var at int64
			var filter sql.NullString
			if err := scan(&e.ID, &at, &e.By, &e.Action, &e.Route, &filter, &e.Count, &e.Note); err != nil {
				return err
			}
			e.At = time.UnixMicro(at).UTC()
			if filter.Valid {
				e.Filter = new(admin.Filter)
				// A later version may have written what this one does not know.
				if json.Unmarshal([]byte(filter.String), e.Filter) != nil {
					e.Filter = nil
				}
			}
			entries = append(entries, e)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: read what operators did: %w", err)
	}
	return entries, nil
}
