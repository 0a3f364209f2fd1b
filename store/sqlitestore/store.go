package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/postrider/postrider/relay"
)

// Options of a store. The zero value is useful.
type Options struct {
	// Shards of a store that is created; 0: DefaultShards. For one that exists
	// already: 0, or the number that it has.
	Shards int
}

func (o Options) check() error {
	if o.Shards < 0 || o.Shards > MaxShards {
		return fmt.Errorf("sqlitestore: %d shards: between 1 and %d are possible, or 0 for %d", o.Shards, MaxShards, DefaultShards)
	}
	return nil
}

// Store is an outbox in one SQLite file. It implements relay.Store and is safe
// for concurrent use. Any number of processes on one machine may have the same
// file open.
type Store struct {
	shards int
	// app is the application's pool. Leases are taken and given up with it too,
	// since that has to be durable.
	app *sql.DB
	// settles is one connection that settles: losing a settle to a power
	// failure repeats messages and loses none, so it does not wait for the disk.
	settles *sql.DB
	// reads hands messages out.
	reads *sql.DB
	watch watch

	mu    sync.Mutex
	stood map[place]stood // where leases stood whose cursors are gone

	cleaning sync.Mutex
	cleaner  cleaner
}

var _ relay.Store = (*Store)(nil)

// Open opens the database file, creates it if there is none, and migrates it.
// Close the Store when no Lease is in use any more.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if path == "" || strings.HasPrefix(path, ":memory:") {
		return nil, errors.New("sqlitestore: a store needs a file: in memory every connection would have a database of its own")
	}
	s := &Store{}
	for _, p := range []struct {
		db      **sql.DB
		pragmas []string
	}{
		{&s.app, nil},
		{&s.settles, []string{"synchronous(NORMAL)"}},
		{&s.reads, []string{"query_only(1)"}},
	} {
		db, err := sql.Open("sqlite", DSN(path, p.pragmas...))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("sqlitestore: open %s: %w", path, err), s.Close())
		}
		*p.db = db
	}
	s.settles.SetMaxOpenConns(1)
	s.reads.SetMaxIdleConns(8)
	s.app.SetMaxIdleConns(8)
	if err := s.prepare(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("sqlitestore: open %s: %w", path, err), s.Close())
	}
	return s, nil
}

func (s *Store) prepare(ctx context.Context, o Options) error {
	if err := Migrate(ctx, s.app, o); err != nil {
		return err
	}
	v, err := Status(ctx, s.app)
	if err != nil {
		return err
	}
	s.shards = v.Shards
	s.watch.db = s.reads
	return nil
}

// DSN is the data source name that opens path with modernc.org/sqlite (driver
// name "sqlite") as the package comment says, with more pragmas if wanted, each
// written like "cache_size(-8000)".
func DSN(path string, pragmas ...string) string {
	q := url.Values{
		"_txlock": {"immediate"},
		// First of all: setting the journal mode can meet a lock.
		"_busy_timeout": {"10000"},
		"_pragma":       append([]string{"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"}, pragmas...),
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// DB is a pool for the application's own tables and transactions, opened with
// DSN. It is the Store's: do not close it.
func (s *Store) DB() *sql.DB { return s.app }

// Shards is the number of shards, fixed when the store was created.
func (s *Store) Shards(context.Context) (int, error) { return s.shards, nil }

// Close closes the Store's connections, DB included.
func (s *Store) Close() error {
	errs := []error{s.watch.close()}
	for _, db := range []*sql.DB{s.reads, s.settles, s.app} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sqlitestore: close: %w", err)
	}
	return nil
}

// sqlNow is the time by the database's clock, in microseconds since 1970. It
// stands still within one statement and ticks in milliseconds.
const sqlNow = `(CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000)`

// logTable is the table of one shard's messages.
func logTable(shard int) string { return fmt.Sprintf("postrider_log_%d", shard) }
