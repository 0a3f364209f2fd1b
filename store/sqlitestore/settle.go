package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

const (
	// sqlSettle is the fence: it comes first in every transaction that settles.
	sqlSettle = `UPDATE postrider_cursor SET pos = ?, unsettled = ?, expires = ` + sqlNow + ` + ?, deaths = CASE WHEN ? THEN 0 ELSE deaths END
	WHERE route = ? AND shard = ? AND token = ?`
	// sqlBlock parks a message of the log by its number alone.
	sqlBlock = `INSERT INTO postrider_parked (route, shard, seq, key, state, closes, due, attempts, error, changed_at)
	VALUES (?1, ?2, ?3, ?4, 'blocked', ?7, CASE WHEN NOT ?7 THEN 0 END, ?5, ?6, ` + sqlNow + `)`
	// sqlLost keeps what is known of a message that was in hand and that somebody
	// has deleted from the log. Nothing is left to wait for.
	sqlLost = `INSERT INTO postrider_parked (route, shard, seq, key, state, closes, due, attempts, error, changed_at, id, topic, type, created_at)
	VALUES (?1, ?2, ?3, ?4, 'failed', ?7, CASE WHEN ?7 THEN 0 END, ?5, ?6, ` + sqlNow + `, ?8, ?9, ?10, ` + sqlNow + `)`
	sqlUnpark = `DELETE FROM postrider_parked WHERE route = ? AND shard = ? AND seq = ?`
	// sqlRepark changes a parked row. A scheduled message that finds its key
	// closed arrives only now. One that an operator discarded while it was in
	// hand stays so, and becomes due once more if the lease counts it. ?1 route,
	// ?2 shard, ?3 number, ?4 state, ?5 retry after, ?6 attempts, ?7 error,
	// ?8 closes.
	sqlRepark = `UPDATE postrider_parked SET
		arrival = CASE WHEN state = 'scheduled' AND ?4 = 'blocked' THEN (SELECT max(arrival) + 1 FROM postrider_parked) ELSE arrival END,
		state = CASE state WHEN 'discarded' THEN state ELSE ?4 END,
		closes = ?8,
		due = CASE WHEN state = 'discarded' THEN CASE WHEN ?8 THEN 0 END
			WHEN ?4 IN ('retrying', 'pending') THEN ` + sqlNow + ` + ?5
			WHEN ?4 = 'scheduled' THEN coalesce(not_before, 0)
			WHEN ?4 = 'blocked' AND NOT ?8 THEN 0 END,
		attempts = ?6, error = CASE ?4 WHEN 'blocked' THEN error ELSE ?7 END, changed_at = ` + sqlNow + `
	WHERE route = ?1 AND shard = ?2 AND seq = ?3`
	// sqlHeard is for a row that says already what became of it: the lease has
	// heard of that, and the rest is the operator's.
	sqlHeard = `UPDATE postrider_parked SET closes = 0, due = CASE WHEN state NOT IN ('failed', 'discarded') THEN due END
	WHERE route = ? AND shard = ? AND seq = ?`
	sqlIsParked = `SELECT EXISTS (SELECT 1 FROM postrider_parked WHERE route = ? AND shard = ? AND seq = ?)`
)

// errTwice makes the relay load the state anew.
var errTwice = errors.New("a message of the log was parked already, so somebody has set the cursor back: what stands in each key's way is counted anew")

// Settle records the outcomes in one transaction and renews the lease.
func (l *lease) Settle(ctx context.Context, outcomes []relay.Outcome) error {
	if err := checkOutcomes(outcomes); err != nil {
		return fmt.Errorf("sqlitestore: settle: %w", err)
	}
	before := time.Now()
	var twice bool
	recorded := l.stood
	err := inTx(ctx, l.store.settles, func(tx *sql.Tx) (err error) {
		twice, err = l.record(ctx, tx, outcomes, &recorded)
		return err
	})
	if err == nil && twice {
		err = errTwice
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("sqlitestore: settle %d messages of shard %d of route %q: %w", len(outcomes), l.claim.Shard, l.claim.Route, err)
	}
	l.stood = recorded
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = before.Add(l.claim.TTL)
	l.settles++
	for _, o := range outcomes {
		switch {
		case o.Returned():
		case o.Kept:
			l.out[o.Delivery.Seq] = true
			if !o.Delivery.Parked {
				l.unsettled.Remove(o.Delivery.Seq, o.Delivery.Seq)
			}
		case o.Delivery.Parked:
			delete(l.out, o.Delivery.Seq)
		default:
			l.unsettled.Remove(o.Delivery.Seq, o.Delivery.Seq)
		}
	}
	return nil
}

func checkOutcomes(outcomes []relay.Outcome) error {
	for _, o := range outcomes {
		switch o.State {
		case outbox.StateSent, outbox.StateRetrying, outbox.StateFailed, outbox.StateBlocked,
			outbox.StateScheduled, outbox.StateExpired, outbox.StatePending:
		case outbox.StateDiscarded:
			if o.Delivery.State != outbox.StateDiscarded {
				return fmt.Errorf("message %s: only an operator can discard it", o.Delivery.Message.ID)
			}
		default:
			return fmt.Errorf("message %s: %q is no outcome", o.Delivery.Message.ID, o.State)
		}
	}
	return nil
}

// record does the work of Settle inside its transaction. twice: a message of the
// log was parked already. at gets where the lease stands then.
func (l *lease) record(ctx context.Context, tx *sql.Tx, outcomes []relay.Outcome, at *stood) (twice bool, err error) {
	l.mu.Lock()
	pos, unsettled := l.pos, l.unsettled.Clone()
	l.mu.Unlock()
	for _, o := range outcomes {
		if !o.Delivery.Parked && !o.Returned() {
			unsettled.Remove(o.Delivery.Seq, o.Delivery.Seq)
		}
	}
	at.pos, at.unsettled = pos, encodeNumbers(unsettled)
	result, err := tx.ExecContext(ctx, sqlSettle, pos, at.unsettled, leaseMicros(l.claim.TTL), l.survived, l.claim.Route, l.claim.Shard, l.token)
	if err != nil {
		return false, fmt.Errorf("move the cursor: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		if err != nil {
			return false, fmt.Errorf("move the cursor: %w", err)
		}
		return false, l.lost(ctx, tx)
	}
	var touched []string // keys whose parked messages changed, each once
	seen := map[string]bool{}
	for i := range outcomes {
		o := &outcomes[i]
		if o.Returned() || o.State == outbox.StateSent && !o.Delivery.Parked {
			continue
		}
		again, err := l.recordOne(ctx, tx, o)
		if err != nil {
			return false, fmt.Errorf("message %s: %w", o.Delivery.Message.ID, err)
		}
		twice = twice || again
		if key := o.Delivery.Message.Key; !seen[key] {
			seen[key] = true
			touched = append(touched, key)
		}
	}
	for _, key := range touched {
		if err := promote(ctx, tx, l.claim.Route, l.claim.Shard, key); err != nil {
			return false, err
		}
	}
	return twice, nil
}

// recordOne records an outcome that concerns a parked row. twice: there was one,
// although the message came from the log.
func (l *lease) recordOne(ctx context.Context, tx *sql.Tx, o *relay.Outcome) (twice bool, err error) {
	d, route, shard := &o.Delivery, l.claim.Route, l.claim.Shard
	exec := func(query string, args ...any) (int64, error) {
		result, err := tx.ExecContext(ctx, query, append([]any{route, shard, d.Seq}, args...)...)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	}
	after, closes := o.RetryAfter.Microseconds(), o.Closes(l.claim.Hold)
	parked := d.Parked
	if !parked {
		if err := tx.QueryRowContext(ctx, sqlIsParked, route, shard, d.Seq).Scan(&twice); err != nil {
			return false, err
		}
		parked = twice
	}
	switch {
	case o.State == outbox.StateSent:
		_, err = exec(sqlUnpark)
	case d.Changed():
		_, err = exec(sqlHeard)
	case parked:
		if _, err = exec(sqlRepark, o.State, after, o.Attempts, o.Error, closes); err == nil && o.State != outbox.StateBlocked {
			_, err = exec(l.sql.fillCopy)
		}
	case o.State == outbox.StateBlocked:
		_, err = exec(sqlBlock, d.Message.Key, o.Attempts, o.Error, closes)
	default:
		var n int64
		if n, err = exec(l.sql.park, o.State, after, o.Attempts, o.Error, closes); err == nil && n == 0 {
			m := &d.Message
			_, err = exec(sqlLost, m.Key, o.Attempts, errGone.Error(), closes, m.ID[:], m.Topic, m.Type)
		}
	}
	return twice, err
}
