package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
)

// Operate does what an operator asks for, as admin.Operate says.
func (s *Store) Operate(ctx context.Context, op admin.Operation) (changed []int64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.operate(op)
}

// operate is Operate for callers that hold mu.
func (s *Store) operate(op admin.Operation) (changed []int64, err error) {
	c := s.cursors[cursorKey{op.Route, op.Shard}]
	if c == nil {
		return nil, nil
	}
	var do func(seq int64) (key string, done bool)
	switch op.Action {
	case admin.Replay:
		do = func(seq int64) (string, bool) { return "", s.replay(c, op.Shard, seq) }
	case admin.Retry, admin.Release, admin.Discard:
		do = func(seq int64) (string, bool) {
			p := c.parked[seq]
			if p == nil || !c.operate(p, op.Action) {
				return "", false
			}
			return p.message.Key, true
		}
	default:
		return nil, fmt.Errorf("memstore: there is no action %q", op.Action)
	}
	touched := make(map[string]bool)
	for _, seq := range op.Seqs {
		key, done := do(seq)
		if !done {
			continue
		}
		changed = append(changed, seq)
		touched[key] = true
	}
	for key := range touched {
		c.order(key)
	}
	s.wake()
	return changed, nil
}

// operate changes a parked message; false if its state does not allow it.
func (c *cursor) operate(p *parked, action admin.Action) bool {
	switch {
	case action == admin.Discard && p.state != outbox.StateDiscarded:
		due := time.Time{}
		if p.closes {
			due = atOnce // the lease has to hear of it
		}
		c.put(p, outbox.StateDiscarded, p.closes, due)
	case action == admin.Release && p.state == outbox.StateFailed && p.closing():
		c.put(p, p.state, true, atOnce)
	case action == admin.Retry && p.state != outbox.StateBlocked:
		state := outbox.StateRetrying
		if p.state == outbox.StateScheduled || p.state == outbox.StatePending {
			state = p.state
		}
		p.attempts, p.message.Expires = 0, time.Time{}
		c.put(p, state, p.closes, atOnce)
	default:
		return false
	}
	return true
}

// replay parks a message of the log that has been sent as due.
func (s *Store) replay(c *cursor, shard int, seq int64) bool {
	if seq <= c.started || seq > c.pos || c.unsettled.Has(seq) || c.parked[seq] != nil {
		return false
	}
	r := &s.shards[shard][seq-1]
	if r.tx.state != txCommitted || !c.matches(r.message.Topic) {
		return false
	}
	p := &parked{message: r.message, seq: seq}
	s.replays++
	p.message.Replay, p.message.Expires = s.replays, time.Time{}
	c.put(p, outbox.StatePending, false, atOnce)
	return true
}
