package relay

import (
	"fmt"
	"time"

	"github.com/postrider/postrider/outbox"
)

// Where messages of one route go to several destinations, one that is away or
// slow would in the end fill all the room for messages in hand, and so stop the
// reading for the others. Its messages are parked as pending instead: no attempt
// is spent, and their keys wait. A few stay in hand, to find out whether the
// destination is back. Everything here needs the route's mutex.

const (
	// keptInHand is how many messages of a destination that is away stay in
	// hand, if there is room.
	keptInHand = 10
	// slowAfter is how long messages wait in hand for a destination that cannot
	// keep up.
	slowAfter = time.Second
	// recently is how long a destination counts among those that another must
	// leave room for after something went to it.
	recently = time.Minute
	// Parked messages come back by themselves, at about so many per second and
	// destination, after waitAtLeast and until waitAtMost. Where they can be
	// called back they may stay for longer.
	backPerSecond = 100
	waitAtLeast   = time.Second
	waitAtMost    = time.Minute
	waitForAtMost = 10 * time.Minute
)

// parking is the route's account of what is parked for destinations.
type parking struct {
	most     int       // so much stops the reading
	relieved time.Time // when room was last made
	looked   time.Time // when a call's end was last looked at
	full     bool
	since    time.Time // that it is full
	total    uint64    // messages parked so far
}

// stuck: the destination is away, or does not keep up.
func (d *destination) stuck() bool { return d.breaker.open || d.behind }

// noteStuck keeps the route's list of stuck destinations. A destination that all
// messages go to is never on it: when it is away there is nothing to read for.
func (d *destination) noteStuck() {
	if d.name != "" && d.stuck() {
		d.r.stuck[d] = struct{}{}
	} else {
		delete(d.r.stuck, d)
	}
}

// review parks what stuck destinations have in hand if that is more than a
// quarter of the room, and decides whether there is more to be read.
func (r *route) review(now time.Time) {
	if len(r.waiting) > 0 {
		r.callBack()
	}
	if len(r.stuck) == 0 && !r.parking.full {
		return
	}
	waiting, bytes, parked := 0, int64(0), 0
	for d := range r.stuck {
		if little := r.budget.maxMessages / 16; d.behind && d.waiting+d.alone+d.tied(little+1) <= little {
			d.behind = false // it has caught up
			d.noteStuck()
			continue
		}
		waiting += d.waiting + d.alone
		bytes += d.waitingBytes
		if d.inHand() {
			parked += d.parked // otherwise only reading can bring something to try it with
		}
	}
	r.noteFull(parked, now)
	if waiting > r.budget.maxMessages/4 || bytes > r.budget.maxBytes/4 {
		r.unload(now)
	}
}

// noteFull stops the reading when very much is parked. Once a tenth of that is
// gone it goes on.
func (r *route) noteFull(parked int, now time.Time) {
	p := &r.parking
	full := parked >= p.most || p.full && parked > p.most-max(p.most/10, 1)
	if full == p.full {
		return
	}
	p.full = full
	r.budget.shutDown(full)
	if full {
		p.since = now
		r.log.Warn("too many messages wait for destinations that are away, the route reads no more", "parked", parked, "limit", p.most)
	} else {
		p.since = time.Time{}
		r.log.Info("the route reads on", "parked", parked)
	}
}

// relieve is called while there is no room to receive anything. It takes the
// room from destinations that are stuck, and from those that have much waiting
// for long while others have nothing to do.
func (r *route) relieve() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.parking.relieved) < stallTick/2 || r.parking.full {
		return
	}
	r.parking.relieved = now
	if r.starving(now) {
		for _, d := range r.destinations {
			if !d.stuck() && d.name != "" && now.Sub(d.oldest()) > slowAfter && d.isLarge() {
				d.behind = true
				d.noteStuck()
				d.logger().Info("destination slower than the others, its messages are parked", "waiting", d.waiting)
			}
		}
	}
	if len(r.stuck) > 0 {
		r.unload(now)
		r.lend()
		for _, s := range r.sessions {
			s.kick()
		}
	}
}

// starving reports whether a destination that is well has nothing to do.
func (r *route) starving(now time.Time) bool {
	for _, d := range r.destinations {
		if d.waiting+d.alone == 0 && !d.stuck() && now.Sub(d.used) < recently {
			return true
		}
	}
	return false
}

// oldest is since when a message waits in hand, or is being published.
func (d *destination) oldest() time.Time {
	at := time.Now()
	for _, o := range d.outlets {
		for _, q := range []*queue[*item]{&o.ready, &o.solo} {
			if q.len() > 0 && q.all()[0].page.at.Before(at) {
				at = q.all()[0].page.at
			}
		}
	}
	for _, b := range d.calls {
		for _, it := range b.items {
			if it.page.at.Before(at) {
				at = it.page.at
			}
		}
	}
	return at
}

// isLarge reports whether what is in hand because of the destination takes an
// eighth of the room, or half of an equal part of it.
func (d *destination) isLarge() bool {
	part := max(8, 2*len(d.r.destinations))
	most := max(d.r.budget.maxMessages/part, 1)
	n := d.waiting + d.alone + d.tied(most)
	for _, o := range d.outlets {
		for _, q := range []*queue[*item]{&o.ready, &o.solo} {
			for _, it := range q.all() {
				if n >= most {
					return true
				}
				n += it.line(most) - 1
			}
		}
	}
	return n >= most || d.waitingBytes >= d.r.budget.maxBytes/int64(part)
}

// tied is how many messages are being published and wait behind those, counted
// to most: they cannot be parked until the calls have ended.
func (d *destination) tied(most int) int {
	n := 0
	for _, b := range d.calls {
		for _, it := range b.items {
			if n >= most {
				return n
			}
			n += it.line(most)
		}
	}
	return n
}

// callEnded is called when a call to a slow destination has ended: what waited
// behind its messages can be parked.
func (d *destination) callEnded(now time.Time) {
	p := &d.r.parking
	if now.Sub(p.looked) < stallTick/5 {
		return
	}
	p.looked = now
	d.unload(now)
	d.r.lend()
}

// lend makes up for the room that messages tied to slow destinations take, for
// as long as their calls run: to three times the limit of messages.
func (r *route) lend() {
	lent, most := 0, 3*r.budget.maxMessages
	for d := range r.stuck {
		if lent < most {
			lent += d.tied(most - lent)
		}
	}
	r.budget.lend(min(lent, most))
}

// unload parks what stuck destinations have waiting in hand, but for a little.
func (r *route) unload(now time.Time) {
	for d := range r.stuck {
		d.unload(now)
	}
}

// allowance is how many messages of a stuck destination stay in hand: of one
// that is away what it takes to try it, of a slow one what keeps it busy.
func (d *destination) allowance(now time.Time) int {
	part := d.r.budget.maxMessages / 4 / max(len(d.r.stuck), 1)
	switch {
	case !d.breaker.open:
		return max(part/2, 1)
	case d.breaker.wanted(now):
		return min(max(part, 1), keptInHand)
	default:
		return min(part, keptInHand)
	}
}

// unload parks all but about what the destination is allowed. Messages that
// have come back stay rather than others. None stays behind which too many line
// up in hand, or, if the destination is away, any could: the key of one that is
// parked is closed, so when it has come back the others wait in the store.
func (d *destination) unload(now time.Time) {
	if d.r.parking.full {
		return
	}
	keep := d.allowance(now)
	why := fmt.Sprintf("waits for destination %s, which is slow", describeName(d.name))
	if d.err != nil {
		why = fmt.Sprintf("waits for destination %s: %s", describeName(d.name), describe(d.err))
	}
	for _, o := range d.outlets {
		o.sift(func(it *item) bool {
			line := it.line(keep + 1)
			back := it.key == "" || it.delivery.Parked
			if keep <= 0 || !back && (d.breaker.open || line > keep) {
				o.park(it, why, now)
				return false
			}
			keep -= line
			return true
		})
		signal(o.s.wake)
	}
}

// line is how many messages wait behind this one, and it; counted to most.
func (it *item) line(most int) int {
	n := 0
	for ; it != nil && n < most; it = it.next {
		n++
	}
	return n
}

// park gives a message the outcome that it waits in the store.
func (o *outlet) park(it *item, why string, now time.Time) {
	s, d := o.s, o.to
	d.r.parking.total++
	key, seq := it.key, it.delivery.Seq
	s.because = d
	s.refused(it, Outcome{State: outbox.StatePending, Attempts: it.delivery.Attempts, RetryAfter: o.comeBack(now), Error: why})
	s.because = nil
	o.wait(seq)
	if c := s.closed[key]; c != nil && key != "" {
		c.away = d
	}
}

// comeBack is how long a message that is parked now stays away: the longer the
// more there are, so that a few at a time come back however many wait.
func (o *outlet) comeBack(now time.Time) time.Duration {
	d, most := o.to, waitAtMost
	if _, ok := capability[Recaller](o.s.lease); ok {
		most = waitForAtMost
	}
	wait := time.Duration(d.parked) * time.Second / backPerSecond
	wait = min(max(wait, waitAtLeast), most)
	if d.breaker.open {
		wait = max(wait, d.breaker.probeAt.Sub(now))
	}
	return jittered(wait)
}

// tally counts what is parked because of a destination: its messages, and those
// of their keys behind them.
func (s *session) tally(it *item, o *Outcome) {
	if s.r.resolver == nil {
		return
	}
	var d *destination
	switch {
	case o.State == outbox.StatePending && !o.Returned():
		d = s.because
	case o.State == outbox.StateBlocked:
		if d = s.because; d == nil {
			if c := s.closed[it.key]; c != nil {
				d = c.away
			}
		}
	}
	seq := it.delivery.Seq
	was := s.parkedFor[seq]
	if was == d || s.ending {
		return
	}
	if was != nil {
		was.parked--
		delete(s.parkedFor, seq)
		if o := s.outlets[was]; o != nil {
			delete(o.parked, seq)
		}
	}
	if d != nil {
		d.parked++
		s.parkedFor[seq] = d
	}
}
