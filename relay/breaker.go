package relay

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

const (
	probeInitial = 100 * time.Millisecond
	probeMax     = 10 * time.Second
)

// breaker stops the publishing to a destination that is away. While it is open
// one message at a time probes whether the destination is back, with growing
// waits between. The route's mutex guards it.
type breaker struct {
	open  bool
	since time.Time
	alarm bool
	// certain: the destination is away for sure. Otherwise messages of one call have
	// timed out, and another message will show whose fault it is.
	certain  bool
	gone     []identity // suspects that were parked
	wait     time.Duration
	probeAt  time.Time
	probing  bool // a probe is under way
	checking bool // one with another message, at once, since it is not certain
	openings int  // tells a probe whose breaker has been closed meanwhile
	closings int  // tells a call whether it was open meanwhile
	timer    *time.Timer
}

// trip opens the breaker; false if it was open already.
func (b *breaker) trip(now time.Time, certain bool, wake func()) bool {
	b.certain = b.certain || certain
	if b.open {
		return false
	}
	b.open, b.since = true, now
	b.openings++
	b.wait = probeInitial
	b.schedule(now, wake)
	return true
}

// again puts the next probe off further.
func (b *breaker) again(now time.Time, wake func()) {
	b.wait = min(2*b.wait, probeMax)
	b.schedule(now, wake)
}

func (b *breaker) schedule(now time.Time, wake func()) {
	b.probing, b.checking = false, false
	wait := jittered(b.wait)
	b.probeAt = now.Add(wait)
	b.stop()
	b.timer = time.AfterFunc(wait, wake)
}

// reset closes the breaker.
func (b *breaker) reset() {
	b.stop()
	*b = breaker{openings: b.openings, closings: b.closings + 1}
}

func (b *breaker) stop() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

// suspect is a message whose publish timed out while no other got through.
type suspect struct {
	item  *item
	err   error
	alone bool // nothing else was in the call
}

// wanted reports whether the open breaker could use a message now.
func (b *breaker) wanted(now time.Time) bool {
	return !b.certain && !b.checking || !b.probing && !now.Before(b.probeAt)
}

// takeProbe returns the one message that is to find out whether the destination
// is back, if it is time: rather one that is not under suspicion.
func (d *destination) takeProbe(now time.Time) *batch {
	b := &d.breaker
	if !b.certain && !b.checking {
		if probe := d.pickProbe(now, ready); probe != nil {
			b.checking = true
			return probe
		}
	}
	if b.probing || now.Before(b.probeAt) {
		return nil
	}
	if d.name != "" && d.r.probing >= d.r.crew()/4 {
		b.schedule(now, d.wake)
		return nil
	}
	for _, from := range []func(*outlet, time.Time) []*item{ready, solo, suspected} {
		if probe := d.pickProbe(now, from); probe != nil {
			b.probing = true
			return probe
		}
	}
	return nil
}

func (d *destination) pickProbe(now time.Time, from func(*outlet, time.Time) []*item) *batch {
	for range d.outlets {
		o := d.nextOutlet()
		if !o.s.mayPublish(now) {
			o.s.late = true
			continue
		}
		if items := from(o, now); len(items) > 0 {
			return d.r.newBatch(o, items, batch{probe: true}, now)
		}
	}
	return nil
}

func ready(o *outlet, now time.Time) []*item   { return o.pull(1, 0, now) }
func solo(o *outlet, now time.Time) []*item    { return o.pullSolo(now) }
func suspected(o *outlet, _ time.Time) []*item { return o.pullSuspect() }

// trip opens the breaker.
func (d *destination) trip(err error, certain bool, now time.Time) {
	d.err = err
	if d.r.relay.publishing.Err() != nil {
		return
	}
	if d.breaker.trip(now, certain, d.wake) {
		d.logger().Warn("broker unavailable, messages are kept", "alarm", outbox.IsAlarm(err), "error", describe(err))
		d.noteStuck()
	}
	d.enqueue()
}

// available closes the breaker after a probe got through. What timed out
// before did so by its own fault, then: alone it spends an attempt, in company
// it is tried alone.
func (d *destination) available(now time.Time) {
	d.logger().Info("broker available again", "down", now.Sub(d.breaker.since))
	d.breaker.reset()
	d.err = nil
	d.noteStuck()
	for _, o := range d.outlets {
		suspects := o.suspects
		o.suspects = nil
		for _, x := range suspects {
			if x.alone {
				d.r.retry(o.s, x.item, x.err)
			} else {
				o.single(x.item)
			}
		}
		o.s.kick()
	}
	d.enqueue()
}

// absolve clears all suspects: messages of different calls got no answer, so
// it is the destination that is away.
func (d *destination) absolve() {
	d.breaker.certain = true
	for _, o := range d.outlets {
		items := make([]*item, len(o.suspects))
		for i, x := range o.suspects {
			items[i] = x.item
		}
		o.suspects = nil
		o.unpop(items)
	}
}

// othersFailed reports whether messages of another call than these are under
// suspicion.
func (d *destination) othersFailed(items []*item) bool {
	for _, o := range d.outlets {
		if len(o.suspects) > 0 {
			return true
		}
	}
	return len(d.breaker.gone) > 0 && !slices.ContainsFunc(items, func(it *item) bool {
		return slices.Contains(d.breaker.gone, identityOf(it.delivery))
	})
}

// wake gives the destination its turn, for a probe.
func (d *destination) wake() {
	d.r.mu.Lock()
	defer d.r.mu.Unlock()
	d.enqueue()
	d.r.rouse()
}

func (d *destination) logger() *slog.Logger {
	if d.name == "" {
		return d.r.log
	}
	return d.r.log.With("destination", describeName(d.name))
}

// jittered gives or takes a fifth, so that many waiters spread out.
func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
