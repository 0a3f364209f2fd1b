package inboxdb_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/uuid"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/inboxdb"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
)

var migrations = fstest.MapFS{
	"migrations/postgres/1.sql": {Data: []byte(`CREATE TABLE IF NOT EXISTS effect (n bigint NOT NULL CHECK (n > 0))`)},
	"migrations/sqlite/1.sql":   {Data: []byte(`CREATE TABLE IF NOT EXISTS effect (n INTEGER NOT NULL CHECK (n > 0)) STRICT`)},
}

// onEach runs a test on each kind of database, opened twice.
func onEach(t *testing.T, test func(t *testing.T, a, b *inboxdb.DB)) {
	for name, url := range map[string]func(t *testing.T) string{
		"SQLite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "own.db") },
		"PostgreSQL": func(t *testing.T) string { return pgtest.Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			where, err := config.ParseDatabase(url(t))
			if err != nil {
				t.Fatal(err)
			}
			var opened [2]*inboxdb.DB
			var wait sync.WaitGroup
			for i := range opened {
				wait.Go(func() {
					db, err := inboxdb.Open(t.Context(), where, inboxdb.Options{Migrations: migrations})
					if err != nil {
						t.Error(err)
						return
					}
					opened[i] = db
				})
			}
			wait.Wait()
			if t.Failed() {
				t.FailNow()
			}
			t.Cleanup(func() {
				for _, db := range opened {
					if err := db.Close(); err != nil {
						t.Error(err)
					}
				}
			})
			test(t, opened[0], opened[1])
		})
	}
}

func insert(ctx context.Context, tx inboxdb.Tx, _ outbox.Message) error {
	return tx.Exec(ctx, `INSERT INTO effect (n) VALUES ($1)`, 1)
}

func effects(t testing.TB, db *inboxdb.DB) (n int) {
	t.Helper()
	if err := db.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM effect`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOnceUnderConcurrentDuplicates(t *testing.T) {
	const messages, copies = 20, 4
	onEach(t, func(t *testing.T, a, b *inboxdb.DB) {
		var wait sync.WaitGroup
		for range messages {
			m := outbox.Message{ID: uuid.New()}
			for i := range copies {
				handle := []*inboxdb.DB{a, b}[i%2].Once("test", insert)
				wait.Go(func() {
					if err := handle(t.Context(), m); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wait.Wait()
		if n := effects(t, b); n != messages {
			t.Errorf("%d effects of %d messages", n, messages)
		}
	})
}

func TestSeen(t *testing.T) {
	onEach(t, func(t *testing.T, a, b *inboxdb.DB) {
		m := outbox.Message{ID: uuid.New()}
		seen := func(want bool) {
			t.Helper()
			if got, err := b.Seen(t.Context(), "test", m.ID); err != nil || got != want {
				t.Errorf("seen %v, %v; want %v", got, err, want)
			}
		}
		seen(false)
		seen(false)
		failure := errors.New("this time")
		if err := a.Once("test", func(context.Context, inboxdb.Tx, outbox.Message) error { return failure })(t.Context(), m); !errors.Is(err, failure) {
			t.Errorf("error %v", err)
		}
		seen(false)
		// One that is being handled is waited for.
		begun, finish := make(chan struct{}), make(chan struct{})
		handled := make(chan error, 1)
		go func() {
			handled <- a.Once("test", func(ctx context.Context, tx inboxdb.Tx, m outbox.Message) error {
				close(begun)
				<-finish
				return insert(ctx, tx, m)
			})(t.Context(), m)
		}()
		<-begun
		looked := make(chan struct{})
		go func() {
			defer close(looked)
			seen(true)
		}()
		close(finish)
		<-looked
		if err := <-handled; err != nil {
			t.Error(err)
		}
		if got, err := b.Seen(t.Context(), "another", m.ID); err != nil || got {
			t.Errorf("another consumer has seen it: %v, %v", got, err)
		}
	})
}

func TestClasses(t *testing.T) {
	onEach(t, func(t *testing.T, a, _ *inboxdb.DB) {
		class := func(want outbox.Class, alarm bool, effect inboxdb.Effect) {
			t.Helper()
			err := a.Once("test", effect)(t.Context(), outbox.Message{ID: uuid.New()})
			if err == nil || outbox.ClassOf(err) != want || outbox.IsAlarm(err) != alarm {
				t.Errorf("%v is %v, alarm %v; want %v, %v", err, outbox.ClassOf(err), outbox.IsAlarm(err), want, alarm)
			}
		}
		exec := func(statement string, args ...any) inboxdb.Effect {
			return func(ctx context.Context, tx inboxdb.Tx, _ outbox.Message) error {
				return tx.Exec(ctx, statement, args...)
			}
		}
		class(outbox.ClassPermanent, false, exec(`INSERT INTO effect (n) VALUES ($1)`, -1))
		class(outbox.ClassRetryable, false, func(context.Context, inboxdb.Tx, outbox.Message) error { return errors.New("mine") })
		class(outbox.ClassUnavailable, false, func(context.Context, inboxdb.Tx, outbox.Message) error { return driver.ErrBadConn })
		class(outbox.ClassUnavailable, false, func(context.Context, inboxdb.Tx, outbox.Message) error { return outbox.Unavailable(errors.New("mine")) })
		if strings.HasPrefix(a.String(), "postgres") {
			class(outbox.ClassUnavailable, true, exec(`INSERT INTO none VALUES (1)`))
		}
		if n := effects(t, a); n != 0 {
			t.Errorf("%d effects", n)
		}
		if err := a.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A database that goes away is no fault of the message, and is back by itself.
func TestServerAway(t *testing.T) {
	server := pgtest.Server(t)
	where, err := config.ParseDatabase(server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	db, err := inboxdb.Open(t.Context(), where, inboxdb.Options{Migrations: migrations})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	handle := db.Once("test", insert)
	first, second := outbox.Message{ID: uuid.New()}, outbox.Message{ID: uuid.New()}
	if err := handle(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 30 { // each connection of the pool finds out by itself
		if err := handle(t.Context(), second); err == nil || outbox.ClassOf(err) != outbox.ClassUnavailable {
			t.Fatalf("error %v", err)
		}
	}
	if err := db.Check(t.Context()); err == nil || outbox.ClassOf(err) != outbox.ClassUnavailable {
		t.Errorf("the check finds %v", err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range []outbox.Message{first, second} {
		if err := handle(t.Context(), m); err != nil {
			t.Error(err)
		}
	}
	if n := effects(t, db); n != 2 {
		t.Errorf("%d effects", n)
	}
}

func TestOpenComplains(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "none", "own.db")} {
		where, err := config.ParseDatabase("sqlite:" + path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inboxdb.Open(t.Context(), where, inboxdb.Options{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v", err)
		}
	}
	if _, err := inboxdb.Open(t.Context(), config.Database{}, inboxdb.Options{}); err == nil {
		t.Error("none named: no error")
	}
	where, err := config.ParseDatabase("sqlite:" + filepath.Join(t.TempDir(), "own.db"))
	if err != nil {
		t.Fatal(err)
	}
	broken := fstest.MapFS{"migrations/sqlite/1.sql": {Data: []byte("CREATE")}}
	if _, err := inboxdb.Open(t.Context(), where, inboxdb.Options{Migrations: broken}); err == nil || !strings.Contains(fmt.Sprint(err), "sqlite/1.sql") {
		t.Errorf("error %v", err)
	}
}
