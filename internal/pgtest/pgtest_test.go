package pgtest

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func connect(t *testing.T, at string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func TestDatabasesAreSeparateAndEmpty(t *testing.T) {
	one, two := Database(t), Database(t)
	if one == two {
		t.Fatalf("two calls gave the same database %s", one)
	}
	if _, err := connect(t, one).Exec(t.Context(), "CREATE TABLE mine (id int)"); err != nil {
		t.Fatal(err)
	}
	var tables int
	if err := connect(t, two).QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&tables); err != nil {
		t.Fatal(err)
	}
	if tables != 0 {
		t.Errorf("the second database has %d tables", tables)
	}
}

// What a test leaves open must not keep its database.
func TestDatabaseIsDroppedInUse(t *testing.T) {
	var of string
	t.Run("leaves things open", func(t *testing.T) {
		of = Database(t)
		conn, err := pgx.Connect(t.Context(), of) // never closed
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			"CREATE TABLE mine (id int)",
			"BEGIN", "INSERT INTO mine VALUES (1)", "PREPARE TRANSACTION 'it''s open'",
			"BEGIN", "INSERT INTO mine VALUES (2)",
		} {
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	})
	if _, err := pgx.Connect(t.Context(), of); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("the database is still there (%v)", err)
	}
}

func TestServerTakesSettings(t *testing.T) {
	s := Server(t, "synchronous_commit=off")
	var value string
	if err := connect(t, s.URL("postgres")).QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&value); err != nil {
		t.Fatal(err)
	}
	if value != "off" {
		t.Errorf("synchronous_commit = %s", value)
	}
}

// The server that the tests share must outlive every garbage collection.
func TestSharedServerIsNotCollected(t *testing.T) {
	db := Database(t)
	for range 3 {
		runtime.GC() // finalizers and cleanups need more than one
	}
	// Its watchdog would end it within a moment.
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		conn, err := pgx.Connect(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close(t.Context())
	}
}
