package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// DefaultShards is the number of shards of a store that names none.
const DefaultShards = 4

// MaxShards keeps the number of tables and of leases within reason.
const MaxShards = 64

//go:embed migrations/*.sql
var migrationFiles embed.FS

// ErrNewer means that the tables were made by a later version of Postrider.
var ErrNewer = errors.New("the outbox tables are newer than this program knows")

// Version says how a database's tables stand.
type Version struct {
	// Have is the version of the tables in the database; 0: there are none.
	Have int
	// Known is the newest version that this program knows.
	Known int
	// Pending are the names of the migrations that are missing.
	Pending []string
	// Shards of the store; 0: there is none.
	Shards int
}

// Migrate creates Postrider's tables in db, or brings them up to date. It may be
// called again, and by several processes at once. The number of shards counts
// when the tables are created, and is fixed from then on: a different one is
// refused, as are tables newer than this program knows (ErrNewer). After an error
// nothing was changed.
func Migrate(ctx context.Context, db *sql.DB, o Options) error {
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
	if err := migrate(ctx, conn, o); err != nil {
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
		if busy, ok := errors.AsType[*sqlite.Error](err); !ok || busy.Code()&0xff != sqlite3.SQLITE_BUSY || time.Now().After(end) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Duration(1+rand.IntN(10)) * time.Millisecond):
		}
	}
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
	all, err := migrations()
	if err != nil {
		return "", err
	}
	script := sqlCreateMeta + ";\n"
	for _, m := range all {
		script += m.script(shards)
	}
	return script + fmt.Sprintf("INSERT INTO postrider_meta (name, value) VALUES ('shards', %d), ('version', %d);\n", shards, len(all)), nil
}

const (
	sqlCreateMeta = `CREATE TABLE IF NOT EXISTS postrider_meta (
	name  TEXT    PRIMARY KEY,
	value INTEGER NOT NULL
) STRICT, WITHOUT ROWID`
	sqlHasMeta = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'postrider_meta'`
	sqlGetMeta = `SELECT
	coalesce((SELECT value FROM postrider_meta WHERE name = 'version'), 0),
	coalesce((SELECT value FROM postrider_meta WHERE name = 'shards'), 0)`
	sqlSetMeta = `INSERT INTO postrider_meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`
)

// querier is a *sql.DB, a *sql.Conn or a *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func version(ctx context.Context, q querier) (Version, error) {
	all, err := migrations()
	if err != nil {
		return Version{}, err
	}
	v := Version{Known: len(all)}
	var has int
	if err := q.QueryRowContext(ctx, sqlHasMeta).Scan(&has); err != nil {
		return Version{}, err
	}
	if has > 0 {
		if err := q.QueryRowContext(ctx, sqlGetMeta).Scan(&v.Have, &v.Shards); err != nil {
			return Version{}, err
		}
	}
	for _, m := range all[min(v.Have, v.Known):] {
		v.Pending = append(v.Pending, m.name)
	}
	return v, nil
}

func migrate(ctx context.Context, q querier, o Options) error {
	v, err := version(ctx, q)
	if err != nil {
		return err
	}
	if v.Have > v.Known {
		return fmt.Errorf("%w: they have version %d, it knows %d", ErrNewer, v.Have, v.Known)
	}
	if v.Have > 0 && o.Shards != 0 && o.Shards != v.Shards {
		return fmt.Errorf("the store has %d shards, which is fixed: %d cannot be had", v.Shards, o.Shards)
	}
	if v.Have == 0 {
		v.Shards = cmp.Or(o.Shards, DefaultShards)
		if _, err := q.ExecContext(ctx, sqlCreateMeta); err != nil {
			return err
		}
		if _, err := q.ExecContext(ctx, sqlSetMeta, "shards", v.Shards); err != nil {
			return err
		}
	}
	all, err := migrations()
	if err != nil {
		return err
	}
	for _, m := range all[v.Have:] {
		if _, err := q.ExecContext(ctx, m.script(v.Shards)); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if _, err := q.ExecContext(ctx, sqlSetMeta, "version", m.number); err != nil {
			return err
		}
	}
	return nil
}

// migration is one step, from NNNN_name.sql and, once for each shard,
// NNNN_name.shard.sql.
type migration struct {
	number         int
	name           string
	once, perShard string
}

func (m migration) script(shards int) string {
	script := "-- " + m.name + "\n" + m.once
	if m.perShard != "" {
		for shard := range shards {
			script += strings.ReplaceAll(m.perShard, "{shard}", strconv.Itoa(shard))
		}
	}
	return script
}

// migrations are all steps, in order, numbered from 1 without gaps.
func migrations() ([]migration, error) {
	entries, err := fs.ReadDir(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("read the embedded migrations: %w", err)
	}
	var all []migration
	for _, e := range entries { // sorted by name
		name := e.Name()
		if strings.HasSuffix(name, ".shard.sql") {
			continue
		}
		once, err := migrationFiles.ReadFile("migrations/" + name)
		if err != nil {
			return nil, fmt.Errorf("read migration %s: %w", name, err)
		}
		perShard, err := migrationFiles.ReadFile("migrations/" + strings.TrimSuffix(name, ".sql") + ".shard.sql")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read migration %s: %w", name, err)
		}
		number, err := strconv.Atoi(name[:strings.IndexByte(name+"_", '_')])
		if err != nil || number != len(all)+1 {
			return nil, fmt.Errorf("migration %s is out of order: number %04d is due", name, len(all)+1)
		}
		all = append(all, migration{number: number, name: strings.TrimSuffix(name, ".sql"), once: string(once), perShard: string(perShard)})
	}
	return all, nil
}
