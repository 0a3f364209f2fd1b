package pgstore_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/store/pgstore"
)

// deafConn throws away what arrives, once it is told to.
type deafConn struct {
	net.Conn
	deaf *atomic.Bool
}

func (c deafConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.deaf.Load() {
			return n, err
		}
	}
}

// watched is a pool of which all connections that are open can be made deaf.
func watched(t *testing.T, silence time.Duration) (pool *pgxpool.Pool, deafen func()) {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	now := new(atomic.Bool)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		mu.Lock()
		defer mu.Unlock()
		return deafConn{conn, now}, err
	}
	pgstore.Watchful(config, silence)
	if pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, func() {
		mu.Lock()
		defer mu.Unlock()
		now.Store(true)
		now = new(atomic.Bool)
	}
}

// A statement on a connection that is dead without a word ends soon, and the
// other connections of that time are not used again.
func TestSilentConnectionsAreGivenUp(t *testing.T) {
	const silence = 500 * time.Millisecond
	pool, deafen := watched(t, silence)
	var conns [3]*pgxpool.Conn
	for i := range conns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		conns[i] = conn
	}
	time.Sleep(silence) // so that the last word of all of them is old enough
	deafen()
	ask := func(conn *pgxpool.Conn) error {
		return conn.QueryRow(t.Context(), "SELECT $1::int", 1).Scan(new(int))
	}
	waiting := make(chan error, 1)
	go func() {
		time.Sleep(silence / 2) // by itself it would wait for longer than the other
		waiting <- ask(conns[1])
	}()
	for i, err := range []error{ask(conns[0]), <-waiting, ask(conns[2])} {
		if err == nil || i < 2 && !strings.Contains(err.Error(), "has said nothing for 500ms") {
			t.Errorf("dead connection %d: %v", i, err)
		}
		if !conns[i].Conn().IsClosed() {
			t.Errorf("dead connection %d is used again", i)
		}
	}
	if _, err := pool.Exec(t.Context(), "SELECT 1"); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

// One that works is left alone, however long its statement takes while rows
// come, and however long it had nothing to do.
func TestConnectionsThatWorkAreKept(t *testing.T) {
	pool, _ := watched(t, time.Second)
	pid := func() (pid int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	before := pid()
	rows, err := pool.Query(t.Context(), "SELECT pg_sleep(0.3), repeat('x', 10000) FROM generate_series(1, 8)")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
	}
	if err := rows.Err(); err != nil {
		t.Errorf("a statement of 2.4 s: %v", err)
	}
	time.Sleep(1500 * time.Millisecond)
	if after := pid(); after != before {
		t.Errorf("session %d was given up, now it is %d", before, after)
	}
}

// A session that refuses what a relay needs is not used again.
func TestHostileSessionsAreGivenUp(t *testing.T) {
	pool, _ := watched(t, 0)
	for _, hostile := range []string{
		"SET statement_timeout = 1; SELECT pg_sleep(10)",
		"SET default_transaction_read_only = on; COMMIT; CREATE TABLE t (n int)",
		"BEGIN; SET LOCAL lock_timeout = 1; SELECT pg_advisory_lock(7)",
	} {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		holder, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := holder.Exec(t.Context(), "SELECT pg_advisory_lock(7)"); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), hostile); err == nil {
			t.Errorf("%s: no error", hostile)
		}
		if !conn.Conn().IsClosed() {
			t.Errorf("%s: the session is used again", hostile)
		}
		conn.Release()
		if _, err := holder.Exec(t.Context(), "SELECT pg_advisory_unlock(7)"); err != nil {
			t.Fatal(err)
		}
		holder.Release()
	}
}

func TestWatchfulBoundsConnecting(t *testing.T) {
	for url, want := range map[string]time.Duration{"postgres://h/d": 5 * time.Second, "postgres://h/d?connect_timeout=2": 2 * time.Second, "postgres://h/d?connect_timeout=60": 5 * time.Second} {
		config, err := pgxpool.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		pgstore.Watchful(config, 0)
		if got := config.ConnConfig.ConnectTimeout; got != want {
			t.Errorf("%s: %v, want %v", url, got, want)
		}
	}
}
