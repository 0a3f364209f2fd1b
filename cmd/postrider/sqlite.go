package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlitestore"
)

// sqlite is a database file. look reads it and changes nothing in it; it is nil
// if there is no file and none may be created.
type sqlite struct {
	c     *config.Config
	look  *sql.DB
	write *sql.DB // nil until something is to be changed
	store *sqlitestore.Store
}

func openSQLite(ctx context.Context, c *config.Config, create bool) (database, error) {
	db := &sqlite{c: c}
	mode := "ro"
	switch info, err := os.Stat(c.Database.Path); {
	case errors.Is(err, fs.ErrNotExist) && create:
		mode = "rwc"
	case errors.Is(err, fs.ErrNotExist):
		return db, nil
	case err != nil:
		return nil, cannotOpen(c, err)
	case info.IsDir():
		return nil, cannotOpen(c, errors.New("it is a folder"))
	}
	look, err := sql.Open("sqlite", "file:"+(&url.URL{Path: c.Database.Path}).EscapedPath()+"?mode="+mode+"&_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, cannotOpen(c, err)
	}
	db.look = look
	if err := db.Ping(ctx); err != nil {
		return nil, errors.Join(cannotOpen(c, err), look.Close())
	}
	return db, nil
}

// sqliteScript is sqlitestore's script as one transaction.
func sqliteScript(shards int) (string, error) {
	script, err := sqlitestore.Script(shards)
	return "BEGIN IMMEDIATE;\n" + script + "COMMIT;\n", err
}

// emptySQLite is what an empty database says about its tables.
func emptySQLite(ctx context.Context) (sqlitestore.Version, error) {
	empty, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return sqlitestore.Version{}, err
	}
	v, err := sqlitestore.Status(ctx, empty)
	return v, errors.Join(err, empty.Close())
}

func cannotOpen(c *config.Config, err error) error {
	return &failure{
		code: exitConnect, err: fmt.Errorf("cannot open the database %s: %w", c.Database, err),
		next: "check the path, whether this user may write the file and its folder, and that it is a database of SQLite",
	}
}

// Ping reads the file's header too, which opening does not.
func (s *sqlite) Ping(ctx context.Context) error {
	_, err := sqlitestore.Status(ctx, s.look)
	return err
}

func (s *sqlite) Status(ctx context.Context) (status, error) {
	read := emptySQLite
	if s.look != nil {
		read = func(ctx context.Context) (sqlitestore.Version, error) { return sqlitestore.Status(ctx, s.look) }
	}
	v, err := read(ctx)
	if err != nil {
		return status{}, err
	}
	st := status{Shards: v.Shards, Version: v.Have, Known: v.Known, CompatibleFrom: v.CompatibleFrom, Missing: v.Pending}
	if err := v.Usable(); errors.Is(err, sqlitestore.ErrNewer) {
		return st, err
	}
	return st, nil
}

func (s *sqlite) Relays(ctx context.Context) ([]admin.RelayStatus, error) {
	if s.look == nil {
		return nil, sqlitestore.ErrNoTables
	}
	return sqlitestore.Members(ctx, s.look)
}

// Migrate asks for the lock again until the time-out: whoever has it stops
// others that write too, but nobody waits behind who waits.
func (s *sqlite) Migrate(ctx context.Context, o migrating) ([]string, error) {
	before, err := s.Status(ctx)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", sqlitestore.DSN(s.c.Database.Path))
	if err != nil {
		return nil, cannotOpen(s.c, err)
	}
	for end := time.Now().Add(o.timeout); ; {
		err = sqlitestore.Migrate(ctx, db, sqlitestore.Options{Shards: o.shards})
		if !sqlitestore.IsBusy(err) || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return before.Missing, db.Close()
}

func (s *sqlite) Store(ctx context.Context) (relay.Store, error) {
	store, err := sqlitestore.Open(ctx, s.c.Database.Path, sqlitestore.Options{})
	if err != nil {
		return nil, cannotOpen(s.c, err)
	}
	s.store = store
	return store, nil
}

func (s *sqlite) Admin(_ context.Context, write bool) (admin.Store, error) {
	if s.look == nil {
		return nil, sqlitestore.ErrNoTables
	}
	if !write {
		return sqlitestore.NewAdmin(s.look), nil
	}
	db, err := sql.Open("sqlite", sqlitestore.DSN(s.c.Database.Path)+"&mode=rw")
	if err != nil {
		return nil, cannotOpen(s.c, err)
	}
	s.write = db
	return sqlitestore.NewAdmin(db), nil
}

func (s *sqlite) Close() error {
	var errs []error
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.write != nil {
		errs = append(errs, s.write.Close())
	}
	if s.look != nil {
		errs = append(errs, s.look.Close())
	}
	return errors.Join(errs...)
}
