package sqlitestore

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// mark identifies a state of the database file. Marks are compared for equality
// only: an unequal one means that somebody, in any process, may have committed.
type mark struct {
	connection int
	version    int64
}

// watch notices commits with one connection for all leases of a Store, so that
// waiting costs the same however many there are.
type watch struct {
	db *sql.DB

	mu    sync.Mutex
	conn  *sql.Conn
	epoch int
	last  mark
	asked time.Time
}

// fresh is how long an answer is good for. An older answer than the truth makes
// a reader look once more than needed, or this much later.
const fresh = time.Millisecond

// sqlDataVersion changes whenever another connection has committed.
const sqlDataVersion = `PRAGMA data_version`

// mark returns the present state of the file.
func (w *watch) mark(ctx context.Context) (mark, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != nil && time.Since(w.asked) < fresh {
		return w.last, nil
	}
	// Not to be interrupted: the connection would be lost, and it takes
	// microseconds.
	ctx = context.WithoutCancel(ctx)
	if w.conn == nil {
		conn, err := w.db.Conn(ctx)
		if err != nil {
			return mark{}, err
		}
		w.conn = conn
		w.epoch++ // versions of different connections say nothing about each other
	}
	m := mark{connection: w.epoch}
	if err := w.conn.QueryRowContext(ctx, sqlDataVersion).Scan(&m.version); err != nil {
		_ = w.conn.Close()
		w.conn = nil
		return mark{}, err
	}
	w.last, w.asked = m, time.Now()
	return m, nil
}

func (w *watch) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn == nil {
		return nil
	}
	err := w.conn.Close()
	w.conn = nil
	return err
}
