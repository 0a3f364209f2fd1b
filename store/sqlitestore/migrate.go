package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// DefaultShards is the number of shards of a store that names none.
const DefaultShards = 4

// MaxShards keeps the number of tables and of leases within reason.
const MaxShards = 64

// ErrNewer means that a later version of Postrider has migrated the tables, and
// that they are not for this one any more.
var ErrNewer = errors.New("the outbox tables were migrated by a later version: use that version of postrider")

// Version says how a database's tables stand.
type Version struct {
	// Have is the version of the tables in the database; 0: there are none.
	Have int
	// Known is the newest version that this program knows.
	Known int
	// CompatibleFrom is the version that a program must know at least to use the
	// tables, Have itself where they do not say; 0: there are none.
	CompatibleFrom int
	// Pending are the names of the migrations that are missing.
	Pending []string
	// Shards of the store; 0: there is none.
	Shards int
}

// Usable reports why a program cannot use the tables as they are: ErrNewer, or
// ErrNoTables if they are missing or lack a migration.
func (v Version) Usable() error {
	switch {
	case v.CompatibleFrom > v.Known:
		return fmt.Errorf("%w (they have version %d, this one knows %d)", ErrNewer, v.Have, v.Known)
	case len(v.Pending) > 0:
		return fmt.Errorf("%w (they lack %v)", ErrNoTables, v.Pending)
	}
	return nil
}

// Migrate creates Postrider's tables in db, or brings them up to date, in one
// transaction: after an error, or if it is killed, nothing was changed. It may be
// called again, by several processes at once, and while programs of the version
// before are at work; it waits for a transaction that writes until the busy
// time-out. The number of shards counts when the tables are created, and is fixed
// from then on: a different one is refused. Tables that a later version has
// migrated are left alone; they are an error (ErrNewer) only if they leave this
// version out.
func Migrate(ctx context.Context, db *sql.DB, o Options) error {
	h, err := known()
	if err != nil {
		return fmt.Errorf("sqlitestore: %w", err)
	}
	return h.migrate(ctx, db, o)
}

func (h history) migrate(ctx context.Context, db *sql.DB, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	conn, err := connect(ctx, db)
	if err != nil {
		return fmt.Errorf("sqlitestore: migrate: %w", err)
	}
	defer conn.Close()
	// IMMEDIATE whatever the connection's default is: two processes that
	// migrate at once wait for each other.
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("sqlitestore: migrate: %w", err)
	}
	if err := h.apply(ctx, conn, o); err != nil {
		_, back := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return fmt.Errorf("sqlitestore: migrate: %w", errors.Join(err, back))
	}
	if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") // nothing is open if the commit succeeded after all
		return fmt.Errorf("sqlitestore: migrate: %w", err)
	}
	return nil
}

// connectPatience is how long connect tries.
const connectPatience = 10 * time.Second

// connect opens a connection. While several processes open a new file, turning
// it to WAL mode fails at once for all but one, whatever the busy timeout says,
// because they would wait for each other; so it is tried again.
func connect(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	for end := time.Now().Add(connectPatience); ; {
		conn, err := db.Conn(ctx)
		if !IsBusy(err) || time.Now().After(end) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Duration(1+rand.IntN(10)) * time.Millisecond):
		}
	}
}

// IsBusy reports whether an error says that others had the database locked until
// the busy time-out.
func IsBusy(err error) bool {
	busy, ok := errors.AsType[*sqlite.Error](err)
	return ok && busy.Code()&0xff == sqlite3.SQLITE_BUSY
}

// Status reports how the tables of db stand, newer ones too. It changes nothing.
func Status(ctx context.Context, db *sql.DB) (Version, error) {
	v, err := version(ctx, db)
	if err != nil {
		return Version{}, fmt.Errorf("sqlitestore: read the version of the tables: %w", err)
	}
	return v, nil
}

// Script is the SQL that has the effect of Migrate on an empty database, for
// people who read it or run it themselves, in one transaction. 0 shards:
// DefaultShards.
func Script(shards int) (string, error) {
	if err := (Options{Shards: shards}).check(); err != nil {
		return "", err
	}
	shards = cmp.Or(shards, DefaultShards)
	h, err := known()
	if err != nil {
		return "", err
	}
	script := sqlCreateMeta + ";\n"
	for _, m := range h {
		script += m.script(shards)
	}
	return script + fmt.Sprintf("INSERT INTO postrider_meta (name, value) VALUES ('shards', %d), ('version', %d), ('compatible_from', %d);\n",
		shards, len(h), h.compatibleFrom()), nil
}

const (
	sqlCreateMeta = `CREATE TABLE IF NOT EXISTS postrider_meta (
	name  TEXT    PRIMARY KEY,
	value INTEGER NOT NULL
) STRICT, WITHOUT ROWID`
	sqlHasMeta = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'postrider_meta'`
	sqlGetMeta = `SELECT
	coalesce((SELECT value FROM postrider_meta WHERE name = 'version'), 0),
	coalesce((SELECT value FROM postrider_meta WHERE name = 'compatible_from'), (SELECT value FROM postrider_meta WHERE name = 'version'), 0),
	coalesce((SELECT value FROM postrider_meta WHERE name = 'shards'), 0)`
	sqlSetMeta = `INSERT INTO postrider_meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`
)

// querier is a *sql.DB, a *sql.Conn or a *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// sqlEndLeases ends every lease under a version that cannot go on: its relay is
// fenced. Nobody takes a lease before the time that its relay counts on is over.
const sqlEndLeases = `UPDATE postrider_cursor SET token = token + 1; DELETE FROM postrider_member`

func version(ctx context.Context, q querier) (Version, error) {
	h, err := known()
	if err != nil {
		return Version{}, err
	}
	return h.version(ctx, q)
}

func (h history) version(ctx context.Context, q querier) (Version, error) {
	v := Version{Known: len(h)}
	var has int
	if err := q.QueryRowContext(ctx, sqlHasMeta).Scan(&has); err != nil {
		return Version{}, err
	}
	if has > 0 {
		if err := q.QueryRowContext(ctx, sqlGetMeta).Scan(&v.Have, &v.CompatibleFrom, &v.Shards); err != nil {
			return Version{}, err
		}
	}
	for _, m := range h[min(v.Have, v.Known):] {
		v.Pending = append(v.Pending, m.name)
	}
	return v, nil
}

// checkUsable asks whether this program may use the tables as they are now.
func checkUsable(ctx context.Context, q querier) error {
	v, err := version(ctx, q)
	if err != nil {
		return err
	}
	return v.Usable()
}

func (h history) apply(ctx context.Context, q querier, o Options) error {
	v, err := h.version(ctx, q)
	if err != nil {
		return err
	}
	if err := v.Usable(); errors.Is(err, ErrNewer) {
		return err
	}
	if v.Have > 0 && o.Shards != 0 && o.Shards != v.Shards {
		return fmt.Errorf("the store has %d shards, which is fixed: %d cannot be had", v.Shards, o.Shards)
	}
	if len(v.Pending) == 0 {
		return nil
	}
	if v.Have == 0 {
		v.Shards = cmp.Or(o.Shards, DefaultShards)
		if _, err := q.ExecContext(ctx, sqlCreateMeta); err != nil {
			return err
		}
	}
	for _, m := range h[v.Have:] {
		if _, err := q.ExecContext(ctx, m.script(v.Shards)); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	from := h.compatibleFrom()
	if v.Have > 0 && from > v.Have {
		if _, err := q.ExecContext(ctx, sqlEndLeases); err != nil {
			return err
		}
	}
	for name, value := range map[string]int{"version": len(h), "shards": v.Shards, "compatible_from": from} {
		if _, err := q.ExecContext(ctx, sqlSetMeta, name, value); err != nil {
			return err
		}
	}
	return nil
}
