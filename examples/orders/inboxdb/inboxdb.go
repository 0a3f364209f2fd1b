// Package inboxdb is a service's own SQL database, PostgreSQL or an SQLite
// file, with an inbox in it: what the service does there commits together with
// the record of having handled the message, so it happens once.
package inboxdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
)

// Options of Open. The zero value is useful.
type Options struct {
	// Migrations has the folders migrations/postgres and migrations/sqlite with
	// the service's own tables, in *.sql files that are run in the order of their
	// names at every start, so they must be safe to run again. nil: it has none.
	Migrations fs.FS
	// Schema of the inbox's table in PostgreSQL. Default: pgstore.DefaultSchema.
	Schema string
	// Connections is the most connections to PostgreSQL, one for each message
	// that is handled at the same time and some for readers. Default: 24.
	Connections int
}

// DB is an open database. It is safe for concurrent use.
type DB struct {
	where   config.Database
	read    *sql.DB
	once    func(consumer string, effect Effect) inbox.Handler
	closers []func() error
}

// Tx is a transaction of either kind of database.
type Tx interface {
	// Exec runs a statement with $1, $2, … for its arguments, in this order.
	Exec(ctx context.Context, statement string, args ...any) error
}

// Effect is what a service does about a message in the transaction that records
// it. It may run again after an error, when all that it did with tx is undone.
type Effect func(ctx context.Context, tx Tx, m outbox.Message) error

// Open connects to the database and creates what is missing in it: the inbox,
// and the service's own tables. It may be done by several processes at once.
func Open(ctx context.Context, where config.Database, o Options) (*DB, error) {
	if o.Connections == 0 {
		o.Connections = 24
	}
	d := &DB{where: where}
	var err error
	switch where.Kind {
	case config.Postgres:
		err = d.openPostgres(ctx, o)
	case config.SQLite:
		err = d.openSQLite(ctx, o)
	default:
		err = errors.New("none is named")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the database %s: %w", where, err), d.Close())
	}
	return d, nil
}

// Timeout bounds one attempt to handle a message, waits for others included.
const Timeout = 2 * time.Minute

// Once makes a handler whose effect happens once for each message id and
// consumer's name. A copy that is handled at the same time waits for the first
// to commit or to fail. The class of an error says whether the database is away
// (unavailable), or not.
func (d *DB) Once(consumer string, effect Effect) inbox.Handler {
	handle := d.once(consumer, effect)
	return func(ctx context.Context, m outbox.Message) error {
		ctx, cancel := context.WithTimeout(ctx, Timeout)
		defer cancel()
		if err := handle(ctx, m); err != nil {
			return classify(err)
		}
		return nil
	}
}

// errOnlyALook undoes what Seen does.
var errOnlyALook = errors.New("only a look")

// Seen reports whether the consumer has handled the message. It records it and
// takes that back, so a copy that is being handled just now is waited for.
func (d *DB) Seen(ctx context.Context, consumer string, id uuid.UUID) (bool, error) {
	look := d.Once(consumer, func(context.Context, Tx, outbox.Message) error { return errOnlyALook })
	err := look(ctx, outbox.Message{ID: id})
	if errors.Is(err, errOnlyALook) {
		return false, nil
	}
	return err == nil, err
}

// Reader is for queries. With SQLite it cannot write.
func (d *DB) Reader() *sql.DB { return d.read }

// Check reports why the database cannot be read. The error's class says whether
// it is away (unavailable), or not.
func (d *DB) Check(ctx context.Context) error {
	if err := d.read.PingContext(ctx); err != nil {
		return classify(fmt.Errorf("reach the database %s: %w", d.where, err))
	}
	return nil
}

// String names the database, without a password.
func (d *DB) String() string { return d.where.String() }

// Close closes all connections.
func (d *DB) Close() error {
	var errs []error
	for i := len(d.closers) - 1; i >= 0; i-- {
		errs = append(errs, d.closers[i]())
	}
	d.closers = nil
	return errors.Join(errs...)
}

func migrate(migrations fs.FS, folder string, run func(script string) error) error {
	if migrations == nil {
		return nil
	}
	files, err := fs.Glob(migrations, "migrations/"+folder+"/*.sql")
	if err != nil || len(files) == 0 {
		return fmt.Errorf("there are no migrations for %s", folder)
	}
	for _, file := range files {
		script, err := fs.ReadFile(migrations, file)
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if err := run(string(script)); err != nil {
			return fmt.Errorf("migrate %s: %w", file, err)
		}
	}
	return nil
}
