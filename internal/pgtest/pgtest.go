// Package pgtest gives tests real PostgreSQL databases and servers.
//
// Database is for the many tests that need an empty database: on the server that
// POSTRIDER_TEST_POSTGRES names, as `make test` does, or else on one that the test
// binary starts when it first needs it and that ends with the binary. Server is
// for the few that stop, crash or configure a server.
package pgtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/pgserver"
)

// Env names the variable with the URL of a server that tests may make databases
// on, as a superuser.
const Env = "POSTRIDER_TEST_POSTGRES"

// patience bounds what one call waits for.
const patience = 2 * time.Minute

// installPatience bounds a start that may have to install the programs first.
const installPatience = 15 * time.Minute

// Database makes an empty database for the test and returns its URL. It is dropped
// when the test ends, with whatever still uses it: connections are cut, prepared
// transactions rolled back and replication slots dropped. The test fails if there
// is no server to be had.
func Database(t testing.TB) string {
	t.Helper()
	server, err := shared()
	if err != nil {
		t.Fatalf("a PostgreSQL server for tests: %v", err)
	}
	name := databaseName(t.Name())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// template0, because somebody may be connected to template1.
	if err := execute(ctx, server, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		t.Fatalf("create a database for the test: %v", err)
	}
	of, err := databaseURL(server, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := drop(ctx, server, of, name); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return of
}

// Server starts a server for the test alone, which may stop, crash and restart it;
// it is closed when the test ends. Settings are written name=value, over the
// defaults of package pgserver.
func Server(t testing.TB, settings ...string) *pgserver.Server {
	t.Helper()
	return ServerOf(t, pgserver.VersionForTests(), settings...)
}

// ServerOf is Server of a major version of PostgreSQL; see pgserver.Options.
func ServerOf(t testing.TB, version string, settings ...string) *pgserver.Server {
	t.Helper()
	o := pgserver.Options{Version: version, Settings: map[string]string{}}
	for _, setting := range settings {
		name, value, ok := strings.Cut(setting, "=")
		if !ok {
			t.Fatalf("setting %q is not written name=value", setting)
		}
		o.Settings[name] = value
	}
	ctx, cancel := context.WithTimeout(t.Context(), installPatience)
	defer cancel()
	s, err := pgserver.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, s)
	return s
}

// Standby starts a standby of the server for the test alone, as
// pgserver.Server.Standby says; it is closed when the test ends.
func Standby(t testing.TB, of *pgserver.Server, settings map[string]string) *pgserver.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := of.Standby(ctx, settings)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, s)
	return s
}

func closeAtEnd(t testing.TB, s *pgserver.Server) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the PostgreSQL server's log:\n%s", s.LogTail())
		}
		if err := s.Close(); err != nil {
			t.Errorf("close the PostgreSQL server: %v", err)
		}
	})
}

// shared returns the URL of the server for this test binary.
func shared() (string, error) {
	if given := os.Getenv(Env); given != "" {
		return given, nil
	}
	s, err := own()
	if err != nil {
		return "", err
	}
	return s.URL("postgres"), nil
}

// own is the server that this test binary runs. It needs no stopping: its
// watchdog ends it when the binary ends. This variable keeps it running, too:
// collected as garbage, it would close the pipe by which the watchdog knows that
// the binary lives.
var own = sync.OnceValues(func() (*pgserver.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), installPatience)
	defer cancel()
	return pgserver.Start(ctx, pgserver.Options{Version: pgserver.VersionForTests(), Settings: pgserver.ForTests()})
})

// databaseName makes a unique name that tells whose database it is.
func databaseName(test string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(test))
	return fmt.Sprintf("t_%.40s_%016x", clean, rand.Uint64())
}

func databaseURL(server, database string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", fmt.Errorf("%s is not a URL that starts with postgres://", Env)
	}
	u.Path = "/" + database
	return u.String(), nil
}

func execute(ctx context.Context, at string, statements ...string) error {
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// drop removes a database although prepared transactions or slots hold it.
func drop(ctx context.Context, server, of, name string) error {
	for {
		_ = release(ctx, of)
		err := execute(ctx, server, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
		if err == nil || ctx.Err() != nil {
			return err
		}
		// A relay that is not stopped yet may have come back in between.
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// release ends what DROP DATABASE … WITH (FORCE) refuses to end.
func release(ctx context.Context, of string) error {
	conn, err := pgx.Connect(ctx, of)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, `SELECT gid FROM pg_prepared_xacts WHERE database = current_database()`)
	if err != nil {
		return err
	}
	prepared, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, gid := range prepared {
		_, _ = conn.Exec(ctx, "ROLLBACK PREPARED '"+strings.ReplaceAll(gid, "'", "''")+"'")
	}
	_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots
		WHERE database = current_database() AND active_pid IS NOT NULL`)
	return err
}
