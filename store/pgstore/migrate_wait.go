package pgstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Wait says what an attempt to migrate gave way to.
type Wait struct {
	// Holders are transactions that were open for as long as the attempt took
	// and hold locks, the oldest first, at most five; none if it was short ones,
	// one after the other.
	Holders []Holder
	// Pause until the next attempt.
	Pause time.Duration
	// Left until the time-out.
	Left time.Duration
}

// Holder is a transaction that holds a lock on one of the tables.
type Holder struct {
	PID         int    // of the server's process; 0: it is a prepared transaction
	Prepared    string // that one's name
	Application string // application_name of the connection
	User        string
	State       string    // of the connection, such as "idle in transaction"; empty: this role may not see it
	Since       time.Time // when the transaction began; zero: this role may not see it
}

// holdersSQL looks at locks on whatever is in the schema, and on what serialises
// migrations. A prepared transaction has no process; its lock on its own id tells
// which one it is.
const holdersSQL = `SELECT coalesce(l.pid, 0), coalesce(p.gid, ''), coalesce(a.application_name, ''), coalesce(a.usename::text, p.owner::text, ''), coalesce(a.state, ''),
		coalesce(a.xact_start, p.prepared)
	FROM (SELECT DISTINCT pid, virtualtransaction FROM pg_locks
		WHERE granted AND pid IS DISTINCT FROM pg_backend_pid() AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND (relation IN (SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace($1))
				OR locktype = 'advisory' AND (classid::bigint << 32 | objid::bigint) = hashtextextended('postrider migrate ' || $2::text, 0))) AS l
	LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
	LEFT JOIN pg_prepared_xacts AS p ON l.pid IS NULL AND p.transaction IN (SELECT transactionid FROM pg_locks AS own
		WHERE own.locktype = 'transactionid' AND own.pid IS NULL AND own.virtualtransaction = l.virtualtransaction)
	WHERE coalesce(a.xact_start, p.prepared, '-infinity') <= clock_timestamp() - $3 * interval '1 microsecond'
	ORDER BY coalesce(a.xact_start, p.prepared), l.pid LIMIT 5`

// readHolders finds who held locks all the time that an attempt took.
func readHolders(ctx context.Context, db DB, schema Schema, took time.Duration) ([]Holder, error) {
	rows, err := db.Query(ctx, holdersSQL, schema.quoted(), schema.Name(), took.Microseconds())
	if err == nil {
		var holders []Holder
		if holders, err = pgx.CollectRows(rows, scanHolder); err == nil {
			return holders, nil
		}
	}
	return nil, fmt.Errorf("look who holds locks: %w", err)
}

func scanHolder(row pgx.CollectableRow) (h Holder, err error) {
	var since *time.Time
	err = row.Scan(&h.PID, &h.Prepared, &h.Application, &h.User, &h.State, &since)
	h.Since = orZero(since)
	return h, err
}

// HeldBy says who holds the locks, in one line.
func (w Wait) HeldBy() string {
	if len(w.Holders) == 0 {
		return "short transactions, one after the other"
	}
	all := make([]string, len(w.Holders))
	for i, h := range w.Holders {
		all[i] = h.String()
	}
	return strings.Join(all, "; ")
}

// String tells all of it: which process of whom, what it does, and since when.
func (h Holder) String() string {
	var b strings.Builder
	if h.PID == 0 {
		fmt.Fprintf(&b, "prepared transaction %q of %s", h.Prepared, h.User)
	} else {
		fmt.Fprintf(&b, "pid %d, application %q of %s", h.PID, h.Application, h.User)
	}
	if h.State != "" {
		fmt.Fprintf(&b, ", %s", h.State)
	}
	if !h.Since.IsZero() {
		fmt.Fprintf(&b, ", its transaction is open since %s", h.Since.UTC().Format(time.RFC3339))
	}
	return b.String()
}
