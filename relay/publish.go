package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/postrider/postrider/outbox"
)

// publish sends a batch and deals with the results.
func (r *route) publish(b *batch) {
	s, d := b.outlet.s, b.outlet.to
	msgs := make([]outbox.Message, len(b.items))
	for i, it := range b.items {
		msgs[i] = it.delivery.Message
	}
	if r.limiter != nil && !b.probe {
		ok := r.waitForRate(s.ctx, len(msgs))
		r.mu.Lock()
		if !ok || d.breaker.open || !s.mayPublish(time.Now()) {
			r.putBack(b)
			r.mu.Unlock()
			return
		}
		b.deadline, b.passes = s.deadline, d.passes
		r.mu.Unlock()
	}
	timeout := r.publishTime(b.deadline, time.Now())
	if timeout <= 0 {
		r.mu.Lock()
		r.putBack(b)
		r.mu.Unlock()
		return
	}
	b.cut = timeout < r.PublishTimeout
	ctx, cancel := context.WithTimeout(r.relay.publishing, timeout)
	results := r.call(ctx, msgs)
	late := ctx.Err() != nil
	b.cut = b.cut || errors.Is(ctx.Err(), context.Canceled)
	cancel()

	r.mu.Lock()
	r.judge(b, results, late, time.Now())
	s.called(b.items[0]) // what is tried alone is alone in its call
	r.left(b)
	s.kick()
	failed := r.takeFailures()
	r.mu.Unlock()
	failed.report(r.log)
}

// call runs the publisher. Whatever it does, there is a result per message: a
// panic, or a wrong number of results, is an error of all of them.
func (r *route) call(ctx context.Context, msgs []outbox.Message) (results []outbox.Result) {
	all := func(err error) []outbox.Result {
		results := make([]outbox.Result, len(msgs))
		for i := range results {
			results[i].Err = outbox.Retryable(err)
		}
		return results
	}
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("publisher panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			results = all(fmt.Errorf("the publisher panicked: %v", p))
		}
	}()
	n := len(msgs)
	results = r.Publisher.Publish(ctx, msgs)
	if len(results) != n {
		return all(fmt.Errorf("the publisher returned %d results for %d messages", len(results), n))
	}
	return results
}

// judge gives each message of a batch what its result calls for. late tells
// that the call's time was up. The caller holds mu.
func (r *route) judge(b *batch, results []outbox.Result, late bool, now time.Time) {
	o, s, d := b.outlet, b.outlet.s, b.outlet.to
	if b.solo {
		d.soloing--
	}
	if b.openings != d.breaker.openings || !d.breaker.open {
		b.probe = false // the breaker it was to probe for is closed
	}
	var away, silent []*item // no answer for a reason of the broker's; no answer in time
	var awayErr, silentErr error
	for i, it := range b.items {
		err := results[i].Err
		if err == nil {
			d.passes++
			s.sent(it, results[i].BrokerID)
			continue
		}
		r.stats.noteError(err, now)
		switch outbox.ClassOf(err) {
		case outbox.ClassPermanent:
			d.passes++
			r.fail(s, it, err)
		case outbox.ClassUnavailable:
			r.stats.Unavailable++
			timeout := late || outbox.IsTimeout(err)
			if timeout && !it.unanswered && !outbox.IsUnsent(err) {
				it.unanswered = true
				r.stats.DuplicatesPossible++
			}
			if timeout && !b.cut {
				silent, silentErr = append(silent, it), err
			} else {
				away, awayErr = append(away, it), err
			}
			if outbox.IsAlarm(err) {
				d.breaker.alarm = true
			}
		default:
			d.passes++
			r.retry(s, it, err)
		}
	}
	if len(away) == 0 && !b.probe && !b.cut {
		d.adapt(len(b.items), len(silent) > 0)
	}
	switch {
	case len(away)+len(silent) == 0:
		if b.probe {
			d.available(now)
		}
		return
	case b.probe:
		r.probeFailed(b, len(silent) > 0, results[0].Err, now)
		return
	}
	if len(silent) > 0 {
		r.silence(b, silent, silentErr, now)
	}
	if len(away) > 0 {
		o.unpop(away)
		d.trip(awayErr, true, now)
	}
}

// silence deals with messages that got no answer in time.
func (r *route) silence(b *batch, items []*item, err error, now time.Time) {
	o, d := b.outlet, b.outlet.to
	alone := len(b.items) == 1
	if d.passes != b.passes && !d.breaker.open {
		// Others got through meanwhile, so the destination is there. If it was
		// away for some of the time, that may have been the reason.
		away := b.closings != d.breaker.closings
		for _, it := range items {
			if alone && !away {
				r.retry(o.s, it, err)
			} else {
				o.single(it)
			}
		}
		return
	}
	certain := d.breaker.certain || d.othersFailed(items)
	for _, it := range items {
		o.suspects = append(o.suspects, suspect{it, err, alone})
	}
	if certain {
		d.absolve()
	}
	d.trip(err, certain, now)
}

// probeFailed keeps the breaker open. A probe that times out is a suspect
// itself, unless others are: that two messages fail shows that the destination
// is away.
func (r *route) probeFailed(b *batch, silent bool, err error, now time.Time) {
	o, it, d := b.outlet, b.items[0], b.outlet.to
	d.err = err
	if silent && !d.breaker.certain && !d.othersFailed(b.items) {
		o.suspects = append(o.suspects, suspect{it, err, true})
	} else {
		d.absolve()
		o.push(it) // to the end: another one probes next
	}
	d.breaker.again(now, d.wake)
}

// retry spends an attempt on a message.
func (r *route) retry(s *session, it *item, err error) {
	attempts := it.delivery.Attempts + 1
	if attempts >= r.Retry.MaxAttempts {
		r.fail(s, it, err)
		return
	}
	s.refused(it, Outcome{
		State: outbox.StateRetrying, Attempts: attempts, Error: describe(err),
		RetryAfter: r.Retry.wait(attempts, rand.Float64()),
	})
}

// fail gives a message up.
func (r *route) fail(s *session, it *item, err error) {
	d := it.delivery
	o := Outcome{State: outbox.StateFailed, Attempts: d.Attempts + 1, Error: describe(err)}
	r.failures.add(s.shard, d, o)
	s.refused(it, o)
}

// failures are messages given up and not logged yet: one line stands for all
// of a call.
type failures struct {
	count int
	first Outcome
	shard int // of the first
}

// takeFailures returns those that are to be logged. The caller holds mu.
func (r *route) takeFailures() failures {
	f := r.failures
	r.failures = failures{}
	return f
}

func (f *failures) add(shard int, d *Delivery, o Outcome) {
	if f.count++; f.count == 1 {
		f.first, f.shard = o, shard
		f.first.Delivery = *d
	}
}

func (f *failures) report(log *slog.Logger) {
	if f.count == 0 {
		return
	}
	d := &f.first.Delivery
	log.Warn("messages failed", "count", f.count, "shard", f.shard, "seq", d.Seq, "id", d.Message.ID,
		"topic", d.Message.Topic, "attempts", f.first.Attempts, "error", f.first.Error)
}
