package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// DefaultSilence is how long Watchful has a statement wait for the next
	// sign of life. Nothing that a relay asks takes long, and a takeover waits
	// for no more than a settle.
	DefaultSilence = 5 * time.Second
	// mostConnecting bounds one try to connect to one address.
	mostConnecting = 5 * time.Second
)

// Watchful makes the connections of a pool end where nothing else would end
// them, so that a relay notices in time that its database is away or another
// one. Call it before the pool is made, with everything else set. silence is 0
// for DefaultSilence.
//
// One that waits for an answer while nothing comes at all for that long is given
// up, and with it all others of the pool that have got nothing in half of that
// time: behind an address that moved, or a network that drops packets, nobody
// says that they are dead. One whose session was told to refuse what a relay has
// to do (by statement_timeout, lock_timeout, a transaction that is read-only) is
// not used again, since a session keeps the settings that its role or database
// had when it began. One try to connect takes 5 s at most, or what the URL's
// connect_timeout says if that is less.
func Watchful(config *pgxpool.Config, silence time.Duration) {
	if silence == 0 {
		silence = DefaultSilence
	}
	conns := &watchedConns{silence: silence}
	c := config.ConnConfig
	if c.ConnectTimeout == 0 || c.ConnectTimeout > mostConnecting {
		c.ConnectTimeout = mostConnecting
	}
	dial := c.DialFunc
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return conns.watch(conn), nil
	}
	keep := c.OnPgError
	c.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if slices.Contains(hostileSession, err.Code) {
			return false
		}
		return keep == nil || keep(conn, err)
	}
}

// hostileSession are the errors (PostgreSQL documentation, "Error Codes") that
// another session might not meet: query_canceled, lock_not_available,
// read_only_sql_transaction.
var hostileSession = []string{"57014", "55P03", "25006"}

// watchedConns are the open connections of one pool.
type watchedConns struct {
	silence time.Duration

	mu  sync.Mutex
	all map[*watchedConn]struct{}
}

func (w *watchedConns) watch(conn net.Conn) *watchedConn {
	c := &watchedConn{Conn: conn, of: w, heard: time.Now()}
	c.timer = time.AfterFunc(w.silence, c.expired)
	c.timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[*watchedConn]struct{}{}
	}
	w.all[c] = struct{}{}
	return c
}

// quiet are those that have got nothing for a while.
func (w *watchedConns) quiet(since time.Time) (all []*watchedConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.all {
		if c.heardBefore(since) {
			all = append(all, c)
		}
	}
	return all
}

// watchedConn closes itself when a Read gets nothing for too long. Reads are by
// one goroutine at a time.
type watchedConn struct {
	net.Conn
	of    *watchedConns
	timer *time.Timer

	mu     sync.Mutex
	heard  time.Time // when the last byte came
	waits  time.Time // since when a Read waits; zero: none does
	silent bool      // given up for its silence
}

func (c *watchedConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	c.waits = time.Now()
	c.timer.Reset(c.of.silence)
	c.mu.Unlock()
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = time.Time{}
	c.timer.Stop()
	if n > 0 {
		c.heard = time.Now()
	}
	if err != nil && c.silent {
		err = fmt.Errorf("%w for %v", errSilent, c.of.silence)
	}
	return n, err
}

var errSilent = errors.New("the server has said nothing")

// Write counts as a sign of life: a long one is read by somebody.
func (c *watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 && !c.waits.IsZero() {
		c.waits = time.Now()
		c.timer.Reset(c.of.silence)
	}
	return n, err
}

func (c *watchedConn) Close() error {
	c.timer.Stop()
	c.of.mu.Lock()
	delete(c.of.all, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func (c *watchedConn) heardBefore(t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard.Before(t)
}

// expired gives the connection up, and all that are as quiet.
func (c *watchedConn) expired() {
	c.mu.Lock()
	answered := c.waits.IsZero() || time.Since(c.waits) < c.of.silence
	c.mu.Unlock()
	if answered {
		return // just now
	}
	c.giveUp()
	for _, other := range c.of.quiet(time.Now().Add(-c.of.silence / 2)) {
		other.giveUp()
	}
}

// giveUp has a Read that waits, or the next one, return an error. pgx closes the
// connection then.
func (c *watchedConn) giveUp() {
	c.mu.Lock()
	c.silent = true
	c.mu.Unlock()
	_ = c.Conn.Close()
}
