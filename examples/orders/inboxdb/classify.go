package inboxdb

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/postrider/postrider/outbox"
)

// classify gives an error of the database its class; one that has a class, such
// as an effect's own, keeps it.
func classify(err error) error {
	if _, ok := errors.AsType[*outbox.Error](err); ok {
		return err
	}
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		return classifyPostgres(err, server.Code)
	}
	if file, ok := errors.AsType[*sqlite.Error](err); ok {
		return classifySQLite(err, file.Code())
	}
	if errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err) {
		return outbox.TimedOut(err)
	}
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	closed := errors.Is(err, driver.ErrBadConn) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if connect || network || closed || pgconn.SafeToRetry(err) {
		return outbox.Unavailable(err)
	}
	return err
}

// The first two characters of PostgreSQL's codes are their class (Appendix A of
// its manual).
func classifyPostgres(err error, code string) error {
	switch class := code[:min(2, len(code))]; {
	case slices.Contains([]string{"08", "53", "57"}, class), code == "25006":
		// Connection, resources, shut down or cancelled by an operator; a server
		// that became a standby.
		return outbox.Unavailable(err)
	case slices.Contains([]string{"28", "3D", "3F", "42"}, class):
		// No such user, database or table, or no right to it: true of every
		// message until somebody mends it.
		return outbox.Refused(err)
	case class == "22" || class == "23" || class == "54":
		// The values themselves, or their size.
		return outbox.Permanent(err)
	}
	return err // retryable: serialization failures, deadlocks, internal errors
}

func classifySQLite(err error, code int) error {
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM,
		sqlite3.SQLITE_INTERRUPT:
		return outbox.Unavailable(err)
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH,
		sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA:
		return outbox.Refused(err)
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE:
		return outbox.Permanent(err)
	}
	return err
}
