//go:build linux || darwin

package pgserver

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// deadline bounds each test far beyond what it needs.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(deadline(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func connect(t *testing.T, s *Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(deadline(t), s.URL("postgres"))
	if err != nil {
		t.Fatalf("%v; the server's log ends:\n%s", err, s.LogTail())
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func text(t *testing.T, s *Server, query string) (answer string) {
	t.Helper()
	if err := connect(t, s).QueryRow(deadline(t), query).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return answer
}

func TestSettings(t *testing.T) {
	s := start(t, Options{Settings: map[string]string{"timezone": "Asia/Kathmandu", "max_prepared_transactions": "7"}})
	for setting, want := range map[string]string{
		"wal_level": "logical", "max_prepared_transactions": "7", "fsync": "on",
		"TimeZone": "Asia/Kathmandu", "listen_addresses": "127.0.0.1",
	} {
		if got := text(t, s, "show "+setting); got != want {
			t.Errorf("%s = %q, want %q", setting, got, want)
		}
	}
}
