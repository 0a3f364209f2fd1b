package trouble

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/pgtest"
)

// The server is there and refuses what a relay needs.
func TestRefusing(t *testing.T) {
	everyVersion(t, func(t *testing.T, version string) {
		w := newWorld(t, pgtest.ServerOf(t, version, "max_connections=30", "superuser_reserved_connections=5", "max_wal_senders=0", "wal_level=replica"), nil)
		w.start(w.gate.URL)
		w.suffer([]trouble{
			{"out of connections", func(w *world) func() {
				return w.hog(asRole(w.t, w.server.URL("postgres")))
			}, `connection slots are reserved|too many clients`},
			{"out of connections, superusers too", func(w *world) func() {
				return w.hog(w.server.URL("postgres"))
			}, `connection slots are reserved|too many clients`},
			{"read-only", func(w *world) func() {
				w.reconfigure("default_transaction_read_only = on")
				return func() { w.reconfigure("default_transaction_read_only = off") }
			}, `stands still.*read-only transaction`},
			// What a role has when a session begins, the session keeps.
			{"a role that is read-only", w.hostile("ROLE "+role, "default_transaction_read_only", "on"), `stands still.*read-only transaction`},
			{"statement_timeout", w.hostile("DATABASE "+database, "statement_timeout", "1ms"), `stands still.*statement timeout`},
			{"lock_timeout", func(w *world) func() {
				end := w.hostile("ROLE "+role, "lock_timeout", "1ms")(w)
				release := w.lockCursors()
				return func() { release(); end() }
			}, `stands still.*lock timeout`},
			{"idle_in_transaction_session_timeout", w.hostile("ROLE "+role, "idle_in_transaction_session_timeout", "1ms"), ""},
		})
	})
}

// hostile has the relay's sessions begin with a setting that keeps it from
// working.
func (*world) hostile(whose, name, value string) func(*world) func() {
	return func(w *world) func() {
		w.sql(database, "ALTER "+whose+" SET "+name+" = '"+value+"'")
		w.cutOff()
		return func() { w.sql(database, "ALTER "+whose+" RESET "+name) }
	}
}

// reconfigure changes the whole server.
func (w *world) reconfigure(setting string) {
	w.t.Helper()
	w.sql("postgres", "ALTER SYSTEM SET "+setting, "SELECT pg_reload_conf()")
}

// lockCursors keeps everybody from the cursors.
func (w *world) lockCursors() (release func()) {
	w.t.Helper()
	ctx := context.WithoutCancel(w.t.Context())
	conn, err := connect(ctx, w.server.URL(database))
	w.must(err)
	_, err = conn.Exec(ctx, "BEGIN; LOCK TABLE postrider.cursor IN ROW EXCLUSIVE MODE; SELECT FROM postrider.cursor FOR UPDATE")
	w.must(err)
	return func() { _ = conn.Close(ctx) }
}

// hog takes every connection that there is, the relay's too.
func (w *world) hog(at string) (end func()) {
	w.t.Helper()
	super, err := connect(w.t.Context(), w.server.URL(database))
	w.must(err)
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var hogging sync.WaitGroup
	hogging.Go(func() {
		var conns []*pgx.Conn
		for ctx.Err() == nil {
			conn, err := connect(ctx, at)
			if err == nil {
				conns = append(conns, conn)
				continue
			}
			// It is full: what the relay has is wanted as well.
			_, _ = super.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+role+"' AND application_name <> 'test'")
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
		for _, conn := range append(conns, super) {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	})
	w.t.Cleanup(func() { stop(); hogging.Wait() })
	return func() { stop(); hogging.Wait() }
}
