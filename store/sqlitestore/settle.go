package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

const (
	// sqlSettle is the fence: it comes first in every transaction that settles.
	sqlSettle = `UPDATE postrider_cursor SET pos = ?, unsettled = ?, expires = ` + sqlNow + ` + ?
	WHERE route = ? AND shard = ? AND token = ?`
	// sqlBlock parks a message of the log by its number alone.
	sqlBlock = `INSERT INTO postrider_parked (route, shard, seq, key, state, attempts, error, changed_at)
	VALUES (?, ?, ?, ?, 'blocked', ?, ?, ` + sqlNow + `)`
	sqlUnpark = `DELETE FROM postrider_parked WHERE route = ? AND shard = ? AND seq = ?`
	// sqlRepark changes a parked row. A scheduled message that finds its key
	// closed arrives only now. ?1 route, ?2 shard, ?3 number, ?4 state, ?5 retry
	// after, ?6 attempts, ?7 error.
	sqlRepark = `UPDATE postrider_parked SET
		arrival = CASE WHEN state = 'scheduled' AND ?4 = 'blocked' THEN (SELECT max(arrival) + 1 FROM postrider_parked) ELSE arrival END,
		state = ?4,
		due = CASE ?4 WHEN 'retrying' THEN ` + sqlNow + ` + ?5 WHEN 'pending' THEN ` + sqlNow + ` + ?5 WHEN 'scheduled' THEN not_before END,
		attempts = ?6, error = ?7, changed_at = ` + sqlNow + `
	WHERE route = ?1 AND shard = ?2 AND seq = ?3`
)

// Settle records the outcomes in one transaction and renews the lease.
func (l *lease) Settle(ctx context.Context, outcomes []relay.Outcome) error {
	if err := checkOutcomes(outcomes); err != nil {
		return fmt.Errorf("sqlitestore: settle: %w", err)
	}
	select {
	case l.settling <- struct{}{}:
		defer func() { <-l.settling }()
	case <-ctx.Done():
		return ctx.Err()
	}
	before := time.Now()
	err := inTx(ctx, l.store.settles, func(tx *sql.Tx) error { return l.record(ctx, tx, outcomes) })
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("sqlitestore: settle %d messages of shard %d of route %q: %w", len(outcomes), l.claim.Shard, l.claim.Route, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = before.Add(l.claim.TTL)
	l.settles++
	for _, o := range outcomes {
		switch {
		case o.Returned():
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
		default:
			return fmt.Errorf("message %s: %q is no outcome", o.Delivery.Message.ID, o.State)
		}
	}
	return nil
}

// record does the work of Settle inside its transaction.
func (l *lease) record(ctx context.Context, tx *sql.Tx, outcomes []relay.Outcome) error {
	l.mu.Lock()
	pos, unsettled := l.pos, l.unsettled.Clone()
	l.mu.Unlock()
	for _, o := range outcomes {
		if !o.Delivery.Parked && !o.Returned() {
			unsettled.Remove(o.Delivery.Seq, o.Delivery.Seq)
		}
	}
	result, err := tx.ExecContext(ctx, sqlSettle, pos, encodeNumbers(unsettled), leaseMicros(l.claim.TTL), l.claim.Route, l.claim.Shard, l.token)
	if err != nil {
		return fmt.Errorf("move the cursor: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		if err != nil {
			return fmt.Errorf("move the cursor: %w", err)
		}
		return relay.ErrFenced
	}
	var touched []string // keys whose parked messages changed, each once
	seen := map[string]bool{}
	for _, o := range outcomes {
		changed, err := l.recordOne(ctx, tx, o)
		if err != nil {
			return fmt.Errorf("message %s: %w", o.Delivery.Message.ID, err)
		}
		if key := o.Delivery.Message.Key; changed && !seen[key] {
			seen[key] = true
			touched = append(touched, key)
		}
	}
	for _, key := range touched {
		if err := l.promote(ctx, tx, key); err != nil {
			return err
		}
	}
	return nil
}

// recordOne records one outcome and reports whether a parked row changed.
func (l *lease) recordOne(ctx context.Context, tx *sql.Tx, o relay.Outcome) (changed bool, err error) {
	d := o.Delivery
	exec := func(query string, args ...any) error {
		result, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err == nil && n == 0 {
			err = fmt.Errorf("number %d is neither parked nor in the log", d.Seq)
		}
		return err
	}
	route, shard := l.claim.Route, l.claim.Shard
	after := o.RetryAfter.Microseconds()
	switch {
	case o.Returned(), o.State == outbox.StateSent && !d.Parked:
		return false, nil
	case o.State == outbox.StateSent:
		return true, exec(sqlUnpark, route, shard, d.Seq)
	case d.Parked:
		if err := exec(sqlRepark, route, shard, d.Seq, o.State, after, o.Attempts, o.Error); err != nil {
			return false, err
		}
		if o.State != outbox.StateBlocked {
			if _, err := tx.ExecContext(ctx, l.sql.fillCopy, route, shard, d.Seq); err != nil {
				return false, err
			}
		}
		return true, nil
	case o.State == outbox.StateBlocked:
		return true, exec(sqlBlock, route, shard, d.Seq, d.Message.Key, o.Attempts, o.Error)
	default:
		return true, exec(l.sql.park, route, shard, d.Seq, o.State, after, o.Attempts, o.Error)
	}
}
