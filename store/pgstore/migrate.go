package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"text/template"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed migrations/*.sql
var migrations embed.FS

// DefaultShards is the number of shards of a new store.
const DefaultShards = 4

// MaxShards bounds the number of shards: each has a table of its own.
const MaxShards = 64

// minServer is the first server with multirange types (PostgreSQL 14).
const minServer = 140000

// ErrNoSchema means that the tables are missing, or not all there.
var ErrNoSchema = errors.New("the outbox tables are missing: create them with 'postrider migrate up'")

// ErrNewerSchema means that a later version has migrated the schema.
var ErrNewerSchema = errors.New("the outbox tables were migrated by a later version: use that version of postrider")

// Options of Migrate and Script.
type Options struct {
	Schema Schema // default DefaultSchema
	// Shards for a new store, 1 to MaxShards; 0: DefaultShards, or what an
	// existing store has. It cannot be changed afterwards.
	Shards int
}

func (o Options) validate() error {
	errs := []error{o.Schema.Validate()}
	if o.Shards < 0 || o.Shards > MaxShards {
		errs = append(errs, fmt.Errorf("shards: %d is not between 1 and %d", o.Shards, MaxShards))
	}
	return errors.Join(errs...)
}

// DB is a connection or a pool.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Status is what a schema has and lacks.
type Status struct {
	Version int      // of the last migration applied; 0: none
	Shards  int      // 0: none
	Pending []string // names of the migrations that are missing
}

// Migrate brings the schema up to date in one transaction and returns the names
// of the migrations that it applied. Run twice, it does nothing; run by several
// at once, one does it and the others wait.
func Migrate(ctx context.Context, db DB, opts Options) ([]string, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	var applied []string
	// At another level what is read after the wait for the lock would be as it was
	// before.
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, ownNames, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		var version int
		if err := tx.QueryRow(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
			return err
		}
		if version < minServer {
			return fmt.Errorf("the server is PostgreSQL %d: 14 or later is needed", version/10000)
		}
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('postrider migrate ' || $1::text, 0))`, opts.Schema.Name()); err != nil {
			return err
		}
		status, err := ReadStatus(ctx, tx, opts.Schema)
		if err != nil {
			return err
		}
		switch {
		case status.Shards == 0 && opts.Shards == 0:
			opts.Shards = DefaultShards
		case opts.Shards == 0:
			opts.Shards = status.Shards
		case status.Shards != 0 && opts.Shards != status.Shards:
			return fmt.Errorf("shards: the store has %d, fixed when it was created, not %d", status.Shards, opts.Shards)
		}
		if len(status.Pending) == 0 {
			return nil
		}
		if err := ensureSchema(ctx, tx, opts.Schema); err != nil {
			return err
		}
		for _, name := range status.Pending {
			sql, err := render(name, opts)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("migration %s: %w", name, err)
			}
			applied = append(applied, name)
		}
		_, err = tx.Exec(ctx, opts.Schema.sql(upsertMeta), strconv.Itoa(status.Version+len(applied)), strconv.Itoa(opts.Shards))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("migrate schema %s: %w", opts.Schema.Name(), err)
	}
	return applied, nil
}

// ReadStatus says what the schema has and lacks; an absent schema lacks
// everything. ErrNewerSchema if it has more than this version knows.
func ReadStatus(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, schema Schema) (Status, error) {
	names, err := migrationNames()
	if err != nil {
		return Status{}, err
	}
	var exists bool
	var s session
	err = db.QueryRow(ctx, sessionSQL, schema.Table("meta")).Scan(&exists, &s.path, &s.server, &s.client)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return Status{}, fmt.Errorf("look for the outbox tables: %w", err)
	}
	if !exists {
		return Status{Pending: names}, nil
	}
	var status Status
	err = db.QueryRow(ctx, schema.sql(`SELECT
		(SELECT value::int FROM {s}.meta WHERE name = 'version'),
		(SELECT value::int FROM {s}.meta WHERE name = 'shards')`)).Scan(&status.Version, &status.Shards)
	if err != nil {
		return Status{}, fmt.Errorf("read the version of the outbox tables: %w", err)
	}
	if status.Version > len(names) {
		return status, fmt.Errorf("%w (schema %s has version %d, this one knows %d)", ErrNewerSchema, schema.Name(), status.Version, len(names))
	}
	status.Pending = names[status.Version:]
	return status, nil
}

// Script is the SQL of all migrations, for people who run it themselves in an
// empty database (as one transaction).
func Script(opts Options) (string, error) {
	if err := opts.validate(); err != nil {
		return "", err
	}
	if opts.Shards == 0 {
		opts.Shards = DefaultShards
	}
	names, err := migrationNames()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "BEGIN;\n%s;\n%s;\n%s;\n", ownNames, opts.Schema.sql(createSchema), opts.Schema.sql(createMeta))
	for _, name := range names {
		sql, err := render(name, opts)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n-- %s\n\n%s", name, sql)
	}
	fmt.Fprintf(&b, "\nINSERT INTO %s (name, value) VALUES ('version', '%d'), ('shards', '%d');\nCOMMIT;\n",
		opts.Schema.Table("meta"), len(names), opts.Shards)
	return b.String(), nil
}

const (
	createSchema = `CREATE SCHEMA IF NOT EXISTS {s}`
	createMeta   = `CREATE TABLE IF NOT EXISTS {s}.meta (name text PRIMARY KEY, value text NOT NULL)`
	upsertMeta   = `INSERT INTO {s}.meta (name, value) VALUES ('version', $1), ('shards', $2)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`
)

// ensureSchema makes the schema and its meta table. An existing schema is left
// alone: a role may own one without the right to create others.
func ensureSchema(ctx context.Context, tx pgx.Tx, schema Schema) error {
	var exists bool
	if err := tx.QueryRow(ctx, `SELECT to_regnamespace($1) IS NOT NULL`, schema.quoted()).Scan(&exists); err != nil {
		return err
	}
	if !exists {
		if _, err := tx.Exec(ctx, schema.sql(createSchema)); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, schema.sql(createMeta))
	return err
}

func migrationNames() ([]string, error) {
	paths, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	for i := range paths {
		paths[i] = strings.TrimSuffix(strings.TrimPrefix(paths[i], "migrations/"), ".sql")
	}
	return paths, nil
}

func render(name string, opts Options) (string, error) {
	t, err := template.ParseFS(migrations, "migrations/"+name+".sql")
	if err != nil {
		return "", fmt.Errorf("migration %s: %w", name, err)
	}
	shards := make([]int, opts.Shards)
	for i := range shards {
		shards[i] = i
	}
	var b strings.Builder
	err = t.Execute(&b, map[string]any{
		"Schema":        opts.Schema.quoted(),
		"SchemaLiteral": quoteLiteral(opts.Schema.quoted()),
		"SchemaText":    escapeLiteral(opts.Schema.Name()),
		"Shards":        shards,
	})
	if err != nil {
		return "", fmt.Errorf("migration %s: %w", name, err)
	}
	return b.String(), nil
}
