package memstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

var errClosed = errors.New("memstore: the lease was closed")

type cursorKey struct {
	route string
	shard int
}

// cursor is what is kept of one shard of one route. The Store's mutex guards it.
type cursor struct {
	owner   string
	deaths  int   // of leases, in a row
	token   int64 // grows with every lease
	expires time.Time
	topics  []string                // the last claim's
	matches func(topic string) bool // and what they take

	topicsFrom int64 // the number above which topics holds
	started    int64 // the number above which the route began

	// As of the last Settle: every number up to pos is settled, but for those
	// in unsettled (handed out without an outcome, or not visible yet).
	pos       int64
	unsettled numset.Set

	parked   map[int64]*parked // by number
	lines    map[string]*line  // by key
	due      dueQueue
	arrivals int64
}

// lease is a relay.Lease. Its fields are guarded by the Store's mutex.
type lease struct {
	store   *Store
	cursor  *cursor
	claim   relay.Claim
	matches func(topic string) bool
	token   int64
	closed  bool
	keys    map[string]int

	deadline time.Time
	taken    time.Time
	known    int64 // what is numbered up to here was read before
	deaths   int
	survived bool
	room     int // bytes left of the page that is being taken

	// The lease reads ahead of what is settled.
	pos       int64
	unsettled numset.Set
	missing   numset.Set // the part of unsettled that was not handed out yet
}

// Acquire takes the lease of one shard of one route, as relay.Store says.
func (s *Store) Acquire(ctx context.Context, claim relay.Claim) (relay.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	matches, err := claim.Validate(len(s.shards))
	if err != nil {
		return nil, fmt.Errorf("memstore: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	key := cursorKey{claim.Route, claim.Shard}
	c := s.cursors[key]
	if c == nil {
		c = s.newCursor(claim)
		s.cursors[key] = c
	}
	if c.owner != "" && c.owner != claim.Owner && now.Before(c.expires) {
		return nil, relay.ErrHeld
	}
	c.token++
	if c.owner != "" && !(claim.Alive && c.owner == claim.Owner) { // it was not given up
		c.deaths++
	}
	c.owner, c.expires = claim.Owner, now.Add(claim.TTL)
	if c.topics != nil && !slices.Equal(c.topics, claim.Topics) {
		c.topicsFrom = c.pos
	}
	c.topics, c.matches = slices.Clone(claim.Topics), matches
	c.reload(claim.Hold)
	l := &lease{
		store: s, cursor: c, claim: claim, matches: matches, token: c.token, deadline: now.Add(claim.TTL),
		taken: now, known: c.pos, deaths: c.deaths,
		keys: make(map[string]int),
		pos:  c.pos, unsettled: c.unsettled.Clone(), missing: c.unsettled.Clone(),
	}
	for name, line := range c.lines {
		if line.closes > 0 {
			l.keys[name] = line.closes
		}
	}
	s.wake() // whoever held it before learns that it is fenced
	return l, nil
}

func (s *Store) newCursor(claim relay.Claim) *cursor {
	c := &cursor{parked: make(map[int64]*parked), lines: make(map[string]*line)}
	if claim.Start == relay.StartNow {
		log := s.shards[claim.Shard]
		c.pos = int64(len(log))
		c.started, c.topicsFrom = c.pos, c.pos
		for i, r := range log {
			if r.tx.state == txOpen { // it commits after the cursor exists
				c.unsettled.Add(int64(i+1), int64(i+1))
			}
		}
	}
	return c
}

func (l *lease) ClosedKeys() map[string]int { return l.keys }

// Deaths implements relay.DeathCounter.
func (l *lease) Deaths() int { return l.deaths }

// Survived implements relay.DeathCounter.
func (l *lease) Survived() {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	l.survived = true
}

func (l *lease) Deadline() time.Time {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return l.deadline
}

func (l *lease) Close(context.Context) error {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.closed && l.cursor.token == l.token {
		l.cursor.owner, l.cursor.deaths = "", 0
	}
	l.closed = true
	s.wake()
	return nil
}

func (l *lease) usable() error {
	switch {
	case l.cursor.token != l.token:
		return relay.ErrFenced
	case l.closed:
		return errClosed
	default:
		return nil
	}
}

// Receive hands out parked messages that are due, late ones, then new ones.
func (l *lease) Receive(ctx context.Context, max int) ([]relay.Delivery, error) {
	if max < 1 {
		return nil, fmt.Errorf("memstore: receive at most %d messages", max)
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l.store.mu.Lock()
		if err := l.usable(); err != nil {
			l.store.mu.Unlock()
			return nil, err
		}
		deliveries, next := l.take(max, time.Now())
		changed := l.store.changed
		l.store.mu.Unlock()
		if len(deliveries) > 0 {
			return deliveries, nil
		}
		var due <-chan time.Time
		var timer *time.Timer
		if !next.IsZero() {
			timer = time.NewTimer(time.Until(next))
			due = timer.C
		}
		select {
		case <-changed:
		case <-due:
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// take collects what can be handed out now; next is when a parked message will
// be due.
func (l *lease) take(max int, now time.Time) (out []relay.Delivery, next time.Time) {
	l.room = relay.PageBytes
	// Parked messages get at most half of the room while the log has more.
	out, next = l.takeParked(out, (max+1)/2, now)
	out = l.takeLog(out, max, now)
	if len(out) < max && l.room > 0 {
		out, next = l.takeParked(out, max, now)
	}
	return out, next
}

func (l *lease) takeParked(out []relay.Delivery, max int, now time.Time) ([]relay.Delivery, time.Time) {
	for len(out) < max && l.room > 0 {
		p, next := l.cursor.nextDue(now)
		if p == nil {
			return out, next
		}
		out = append(out, fromParked(p, l.taken, now))
		l.room -= len(p.message.Payload)
	}
	return out, time.Time{}
}

func fromParked(p *parked, taken, now time.Time) relay.Delivery {
	d := relay.Delivery{Message: p.message, Seq: p.seq, State: outbox.StatePending, Parked: true, Arrival: p.arrival, Attempts: p.attempts}
	d.Again = !p.due.After(taken) && p.changedAt.Before(taken)
	switch {
	case p.closes:
		d.Place = relay.PlaceKept
	case p.state != outbox.StateScheduled:
		d.Place = relay.PlaceNone
	}
	switch {
	case p.changed():
		d.State, d.Released = p.state, p.state == outbox.StateFailed
	case expired(&p.message, now):
		d.State = outbox.StateExpired
	}
	return d
}

func (l *lease) takeLog(out []relay.Delivery, max int, now time.Time) []relay.Delivery {
	log := l.store.shards[l.claim.Shard]
	// Late messages come before any newer one.
	if !l.missing.Empty() {
		var seen, gone []int64
		for seq := range l.missing.All() {
			r := &log[seq-1]
			if r.tx.state == txOpen {
				continue
			}
			if r.tx.state == txRolledBack || !l.matches(r.message.Topic) {
				gone = append(gone, seq)
				continue
			}
			if len(out) == max || l.room <= 0 {
				break
			}
			d := fromLog(r, seq, now)
			d.Again = seq <= l.known
			out = append(out, d)
			l.room -= len(r.message.Payload)
			seen = append(seen, seq)
		}
		for _, seq := range gone {
			l.missing.Remove(seq, seq)
			l.unsettled.Remove(seq, seq)
		}
		for _, seq := range seen {
			l.missing.Remove(seq, seq)
		}
	}
	for ; len(out) < max && l.room > 0 && l.pos < int64(len(log)); l.pos++ {
		r, seq := &log[l.pos], l.pos+1
		switch {
		case r.tx.state == txOpen:
			l.missing.Add(seq, seq)
			l.unsettled.Add(seq, seq)
		case r.tx.state == txRolledBack || !l.matches(r.message.Topic):
		default:
			l.unsettled.Add(seq, seq)
			out = append(out, fromLog(r, seq, now))
			l.room -= len(r.message.Payload)
		}
	}
	return out
}

func fromLog(r *row, seq int64, now time.Time) relay.Delivery {
	state := outbox.StatePending
	switch {
	case expired(&r.message, now):
		state = outbox.StateExpired
	case r.message.NotBefore.After(now):
		state = outbox.StateScheduled
	}
	return relay.Delivery{Message: r.message, Seq: seq, State: state}
}

func expired(m *outbox.Message, now time.Time) bool {
	return !m.Expires.IsZero() && !m.Expires.After(now)
}
