package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DefaultShards is the number of shards of a new store.
const DefaultShards = 4

// MaxShards bounds the number of shards: each has a table of its own.
const MaxShards = 64

// DefaultMigrateTimeout is how long Migrate goes on trying.
const DefaultMigrateTimeout = 5 * time.Minute

// minServer is the first server with multirange types (PostgreSQL 14).
const minServer = 140000

// Options of Migrate and Script.
type Options struct {
	Schema Schema // default DefaultSchema
	// Shards for a new store, 1 to MaxShards; 0: DefaultShards, or what an
	// existing store has. It cannot be changed afterwards.
	Shards int
	// Timeout is how long Migrate goes on trying while transactions of others
	// hold locks on what it must change. Default DefaultMigrateTimeout.
	Timeout time.Duration
	// Waiting, if set, is told of each attempt that gave way to others. It is
	// called by Migrate's own goroutine.
	Waiting func(Wait)
}

func (o Options) validate() error {
	errs := []error{o.Schema.Validate()}
	if o.Shards < 0 || o.Shards > MaxShards {
		errs = append(errs, fmt.Errorf("shards: %d is not between 1 and %d", o.Shards, MaxShards))
	}
	if o.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout %s is negative", o.Timeout))
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

const (
	// lockWait bounds how long an attempt waits for its locks. What it has asked
	// for stands in everybody's way until then: an INSERT waits behind it. It is
	// less than the server's deadlock_timeout (1 s), so that in a deadlock this
	// one gives way before the server ends somebody else's transaction.
	lockWait = 500 * time.Millisecond
	// The pause between attempts is as long as others had to wait, or longer.
	firstPause, longestPause = lockWait, 10 * time.Second
)

// ErrLocked means that others held locks until the time-out.
var ErrLocked = errors.New("the tables are in use by transactions that do not end")

// errBusy marks an attempt that others' locks ended.
var errBusy = errors.New("others hold locks")

// Migrate brings the schema up to date in one transaction and returns the names
// of the migrations that it applied. Whatever ends it in the middle, nothing is
// changed. Run twice, it does nothing; run by several at once, one does it and
// the others wait. Programs of the version before go on meanwhile: an attempt
// gives up after half a second if it does not get the locks it needs, which
// others would wait behind, and is made again until the time-out (ErrLocked).
// A schema that a later version has migrated is left alone; it is an error
// (ErrNewerSchema) only if that leaves this version out.
func Migrate(ctx context.Context, db DB, opts Options) ([]string, error) {
	h, err := known()
	if err != nil {
		return nil, err
	}
	return h.migrate(ctx, db, opts)
}

func (h history) migrate(ctx context.Context, db DB, opts Options) ([]string, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	timeout := opts.Timeout
	if timeout == 0 {
		timeout = DefaultMigrateTimeout
	}
	deadline := time.Now().Add(timeout)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		began := time.Now()
		var applied []string
		// At another level what is read after the wait for the lock would be as it
		// was before.
		err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
			applied, err = h.attempt(ctx, tx, opts)
			return err
		})
		if err == nil {
			return applied, nil
		}
		if !errors.Is(busy(err), errBusy) {
			return nil, fmt.Errorf("migrate schema %s: %w", opts.Schema.Name(), err)
		}
		wait := Wait{Pause: pause + rand.N(pause/4), Left: time.Until(deadline)}
		if wait.Holders, err = readHolders(ctx, db, opts.Schema, time.Since(began)); err != nil {
			return nil, fmt.Errorf("migrate schema %s: %w", opts.Schema.Name(), err)
		}
		if wait.Left < wait.Pause {
			return nil, fmt.Errorf("migrate schema %s: nothing was changed in %s: %w: %s", opts.Schema.Name(), timeout, ErrLocked, wait.HeldBy())
		}
		if opts.Waiting != nil {
			opts.Waiting(wait)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("migrate schema %s: %w", opts.Schema.Name(), ctx.Err())
		case <-time.After(wait.Pause):
		}
	}
}

// busy turns what PostgreSQL says of locks into errBusy.
func busy(err error) error {
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok && (refusal.Code == lockNotAvailable || refusal.Code == deadlockDetected) {
		return errBusy
	}
	return err
}

// PostgreSQL's codes (appendix "Error Codes").
const (
	lockNotAvailable = "55P03"
	deadlockDetected = "40P01"
	queryCanceled    = "57014"
)

const (
	settleInSQL = `SELECT current_setting('server_version_num')::int, current_setting('statement_timeout'), set_config('lock_timeout', $1, true)`

	advisorySQL = `SELECT pg_advisory_xact_lock(hashtextextended('postrider migrate ' || $1::text, 0))`

	// What is added belongs to whom the tables belong, so that default privileges
	// are the same for all. From PostgreSQL 16 on being a member is not enough.
	becomeOwnerSQL = `SELECT set_config('role', owner, true) FROM (SELECT pg_get_userbyid(relowner)::text AS owner FROM pg_class WHERE oid = to_regclass($1)) AS o
		WHERE owner <> current_user AND pg_has_role(owner, CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END)`

	createSchema = `CREATE SCHEMA IF NOT EXISTS {s}`
	createMeta   = `CREATE TABLE IF NOT EXISTS {s}.meta (name text PRIMARY KEY, value text NOT NULL)`
	upsertMeta   = `INSERT INTO {s}.meta (name, value) VALUES ('version', $1), ('shards', $2), ('compatible_from', $3)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`

	statementTimeoutSQL = `SELECT set_config('statement_timeout', $1, true)`
)

// endLeasesSQL ends every lease under a version that cannot go on: its relay is
// fenced, and at its next poll it finds its mark gone. Nobody takes a lease
// before the time that its relay counts on is over. Who was at work is not any
// more, so that the shards are divided among those that can take them.
var endLeasesSQL = []string{`UPDATE {s}.cursor SET token = gen_random_uuid()`, `DELETE FROM {s}.mark`, `DELETE FROM {s}.member`}

// attempt does everything in a transaction.
func (h history) attempt(ctx context.Context, tx pgx.Tx, opts Options) (applied []string, err error) {
	if _, err := tx.Exec(ctx, ownNames, pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, err
	}
	var server int
	var limit, lock string
	if err := tx.QueryRow(ctx, settleInSQL, milliseconds(lockWait)).Scan(&server, &limit, &lock); err != nil {
		return nil, err
	}
	if server < minServer {
		return nil, fmt.Errorf("the server is PostgreSQL %d: 14 or later is needed", server/10000)
	}
	if _, err := tx.Exec(ctx, advisorySQL, opts.Schema.Name()); err != nil {
		return nil, err
	}
	status, err := h.status(ctx, tx, opts.Schema)
	if err != nil {
		return nil, err
	}
	shards, err := opts.shards(status.Shards)
	if err != nil || len(status.Pending) == 0 {
		return nil, err
	}
	if _, err := tx.Exec(ctx, becomeOwnerSQL, opts.Schema.Table("meta")); err != nil {
		return nil, err
	}
	if err := ensureSchema(ctx, tx, opts.Schema); err != nil {
		return nil, err
	}
	steps := h[status.Version:]
	if err := lockTables(ctx, tx, steps, opts.Schema, shards, limit); err != nil {
		return nil, err
	}
	for _, m := range steps {
		sql, err := m.sql(opts.Schema, shards)
		if err != nil {
			return nil, err
		}
		if _, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return nil, fmt.Errorf("migration %s: %w", m.name, err)
		}
	}
	from := h.compatibleFrom(len(h))
	if status.Version > 0 && from > status.Version {
		for _, sql := range endLeasesSQL {
			if _, err := tx.Exec(ctx, opts.Schema.sql(sql)); err != nil {
				return nil, err
			}
		}
	}
	_, err = tx.Exec(ctx, opts.Schema.sql(upsertMeta), strconv.Itoa(len(h)), strconv.Itoa(shards), strconv.Itoa(from))
	return status.Pending, err
}

// shards is how many the store has, or is to have.
func (o Options) shards(has int) (int, error) {
	switch {
	case has != 0 && o.Shards != 0 && o.Shards != has:
		return 0, fmt.Errorf("shards: the store has %d, fixed when it was created, not %d", has, o.Shards)
	case has != 0:
		return has, nil
	case o.Shards == 0:
		return DefaultShards, nil
	}
	return o.Shards, nil
}

// lockTables takes all locks in one statement, so that all of them together are
// waited for no longer than lockWait; lock_timeout counts for each anew.
func lockTables(ctx context.Context, tx pgx.Tx, steps history, schema Schema, shards int, limit string) error {
	var tables []string
	for _, m := range steps {
		tables = append(tables, m.tables(schema, shards)...)
	}
	if tables == nil {
		return nil
	}
	if _, err := tx.Exec(ctx, statementTimeoutSQL, milliseconds(lockWait)); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `LOCK TABLE `+strings.Join(tables, ", ")+` IN ACCESS EXCLUSIVE MODE`); err != nil {
		if refusal, ok := errors.AsType[*pgconn.PgError](err); ok && refusal.Code == queryCanceled && ctx.Err() == nil {
			return errBusy
		}
		return err
	}
	_, err := tx.Exec(ctx, statementTimeoutSQL, limit)
	return err
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

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

// Script is the SQL of all migrations, for people who run it themselves in an
// empty database (as one transaction).
func Script(opts Options) (string, error) {
	if err := opts.validate(); err != nil {
		return "", err
	}
	shards, err := opts.shards(0)
	if err != nil {
		return "", err
	}
	h, err := known()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "BEGIN;\n%s;\n%s;\n%s;\n", ownNames, opts.Schema.sql(createSchema), opts.Schema.sql(createMeta))
	for _, m := range h {
		sql, err := m.sql(opts.Schema, shards)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n-- %s\n\n%s", m.name, sql)
	}
	fmt.Fprintf(&b, "\nINSERT INTO %s (name, value) VALUES ('version', '%d'), ('shards', '%d'), ('compatible_from', '%d');\nCOMMIT;\n",
		opts.Schema.Table("meta"), len(h), shards, h.compatibleFrom(len(h)))
	return b.String(), nil
}
