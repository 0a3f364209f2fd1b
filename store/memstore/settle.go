package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// Settle records the outcomes, all or none, and extends the lease.
func (l *lease) Settle(ctx context.Context, outcomes []relay.Outcome) error {
	sent := time.Now()
	if err := ctx.Err(); err != nil {
		return err
	}
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	for i := range outcomes {
		if err := l.check(&outcomes[i]); err != nil {
			return err
		}
	}
	c, now := l.cursor, time.Now()
	touched := make(map[string]bool)
	parked := false
	run := run{first: 1} // of numbers that leave the unsettled set together
	for i := range outcomes {
		o := &outcomes[i]
		if o.Returned() {
			continue
		}
		d := &o.Delivery
		if !d.Parked {
			if d.Seq != run.last+1 {
				l.unsettled.Remove(run.first, run.last)
				run.first = d.Seq
			}
			run.last = d.Seq
			if o.State == outbox.StateSent {
				continue
			}
		}
		l.apply(o, now)
		parked = true
		if d.Message.Key != "" {
			touched[d.Message.Key] = true
		}
	}
	l.unsettled.Remove(run.first, run.last)
	for key := range touched {
		c.order(key)
	}
	c.pos, c.unsettled = l.pos, l.unsettled.Clone()
	c.expires = now.Add(l.claim.TTL)
	if l.survived {
		c.deaths = 0
	}
	l.deadline = sent.Add(l.claim.TTL)
	if parked {
		s.wake()
	}
	return nil
}

type run struct{ first, last int64 }

// check refuses an outcome that the lease cannot record.
func (l *lease) check(o *relay.Outcome) error {
	d := &o.Delivery
	switch o.State {
	case outbox.StateSent, outbox.StateRetrying, outbox.StateFailed, outbox.StateBlocked,
		outbox.StateScheduled, outbox.StateExpired, outbox.StatePending:
	case outbox.StateDiscarded:
		if d.State == outbox.StateDiscarded {
			break
		}
		fallthrough
	default:
		return fmt.Errorf("memstore: message %d cannot be settled as %q", d.Seq, o.State)
	}
	if d.Parked {
		if p := l.cursor.parked[d.Seq]; p == nil || !p.out {
			return fmt.Errorf("memstore: parked message %d was not handed out", d.Seq)
		}
		return nil
	}
	if d.Seq > l.pos || !l.unsettled.Has(d.Seq) || l.missing.Has(d.Seq) {
		return fmt.Errorf("memstore: message %d was not handed out or is settled already", d.Seq)
	}
	return nil
}

func (l *lease) apply(o *relay.Outcome, now time.Time) {
	c, d := l.cursor, &o.Delivery
	p := c.parked[d.Seq]
	if p == nil {
		p = &parked{message: l.store.shards[l.claim.Shard][d.Seq-1].message, seq: d.Seq}
	}
	closes := o.Closes(l.claim.Hold)
	switch {
	case o.State == outbox.StateSent:
		c.remove(p)
		return
	case d.Changed(): // now the lease knows
		due := p.due
		if p.changed() {
			due = time.Time{}
		}
		p.out = false
		c.put(p, p.state, false, due) // as the operator left it
		return
	case p.state == outbox.StateDiscarded: // while it was in hand
		due := time.Time{}
		if closes {
			due = atOnce // the lease has to hear of it
		}
		p.out, p.attempts = o.Kept, o.Attempts
		c.put(p, p.state, closes, due)
		return
	}
	p.out, p.attempts = o.Kept, o.Attempts
	if o.State != outbox.StateBlocked {
		p.err = o.Error
	}
	switch o.State {
	case outbox.StateRetrying, outbox.StatePending:
		c.put(p, o.State, closes, now.Add(o.RetryAfter))
	case outbox.StateScheduled:
		c.put(p, o.State, closes, p.message.NotBefore)
	default: // blocked, failed, expired: not due
		c.put(p, o.State, closes, time.Time{})
	}
}
