package relay

import (
	"fmt"
	"time"

	"github.com/postrider/postrider/outbox"
)

// A message may end the whole process that publishes it (it runs out of memory,
// say), at every try, without an attempt ever being recorded. So the store counts
// the leases in a row that ended by a death. After the first one, what is read is
// recorded before it is published, so that it is known what was in hand. After
// the second, what may have been in hand is published alone, one message at a
// time in the whole process, and its attempt is recorded before. The one that
// ends the process fails when its attempts are spent; the others get through, and
// no other spends an attempt on it.

const (
	// trialsAfter so many deaths in a row messages are tried alone.
	trialsAfter = 2
	// cautiousPage is how many messages are received at once after a death, so
	// that few are in hand at the next one.
	cautiousPage = 100
)

// DeathCounter is an optional capability of a Lease. Without it a message that
// ends the process at every try does so for ever.
type DeathCounter interface {
	// Deaths is how many leases in a row, up to this one, ended otherwise than by
	// Close, and had not Survived; but for those of a process that has come back
	// for them (Claim.Alive).
	Deaths() int
	// Survived says that the relay has outlived what it may have died of, for as
	// long as a lease lasts: with the next Settle the counting begins anew. Not to
	// be called while Settle is.
	Survived()
}

// trial is the publishing of one message alone.
type trial struct {
	recorded  chan struct{} // closed once its attempt is on record
	over      chan struct{} // closed once what became of it is on record
	committed bool          // recorded is closed
	called    bool          // a Publish call with it has ended, and the process has not
	ended     bool          // over is to be closed with the next settle
}

// cautious reports whether the process may die of what it publishes next.
func (s *session) cautious() bool {
	return s.deaths > 0 && time.Since(s.began) < s.r.relay.config.Lease
}

// survive begins the counting of deaths anew once nothing dangerous has been in
// hand for as long as a lease lasts. It is for the settling goroutine.
func (s *session) survive() {
	s.r.mu.Lock()
	now := time.Now()
	if s.dangerous.len()+len(s.untried) > 0 || s.trying != nil && !s.trying.trial.ended {
		s.endangered = now
	}
	over := now.Sub(s.endangered) >= s.r.relay.config.Lease
	s.r.mu.Unlock()
	if counter, ok := capability[DeathCounter](s.lease); ok && over && !s.survived {
		s.survived = true
		counter.Survived()
	}
}

// noteRead has it recorded what was read, before that is published; false if the
// session has ended.
func (s *session) noteRead() bool {
	noted := make(chan struct{})
	s.r.mu.Lock()
	s.read, s.hurry = noted, true
	signal(s.wake)
	signal(s.full)
	s.r.mu.Unlock()
	select {
	case <-noted:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// isDangerous reports whether a process that died may have been publishing it.
func (s *session) isDangerous(d *Delivery) bool {
	if s.deaths < trialsAfter || d.State != outbox.StatePending {
		return false
	}
	_, blocked := s.untried[d.Seq]
	delete(s.untried, d.Seq)
	return d.Again || blocked
}

// remember keeps in mind that a message is dangerous that is blocked, and comes
// again as if it were new.
func (s *session) remember(d *Delivery) {
	if s.untried == nil {
		s.untried = make(map[int64]struct{})
	}
	s.untried[d.Seq] = struct{}{}
}

// start lets a message be published whose turn it is in its key.
func (s *session) start(it *item) {
	if it.dangerous && it.trial == nil {
		s.dangerous.push(it)
		s.endangered = time.Now()
		signal(s.danger)
		return
	}
	s.offer(it)
}

// tryLoop publishes what is dangerous. It looks again after a while, for what
// waits for a destination that is away.
func (s *session) tryLoop() {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case <-s.danger:
		case <-again.C:
		case <-s.ctx.Done():
			return
		}
		for s.tryNext() {
		}
	}
}

// tryNext publishes the next one; false if there is none, or the session ends.
func (s *session) tryNext() bool {
	s.r.mu.Lock()
	none := s.dangerous.len() == 0
	s.r.mu.Unlock()
	if none {
		return false
	}
	alone := s.r.relay.alone
	select {
	case alone <- struct{}{}:
		defer func() { <-alone }()
	case <-s.ctx.Done():
		return false
	}
	s.r.mu.Lock()
	t, more := s.beginTrial(time.Now())
	failed := s.r.takeFailures()
	s.r.mu.Unlock()
	failed.report(s.r.log)
	if t == nil {
		return more
	}
	select {
	case <-t.recorded:
	case <-s.ctx.Done():
		return false
	}
	s.r.mu.Lock()
	it := s.trying
	s.outletFor(&it.delivery.Message).single(it)
	s.kick()
	s.r.mu.Unlock()
	select {
	case <-t.over:
		return true
	case <-s.ended:
		return false
	}
}

// beginTrial takes the next dangerous message and records an attempt on it. No
// trial but more: it has its outcome already.
func (s *session) beginTrial(now time.Time) (t *trial, more bool) {
	it := s.nextDangerous()
	if it == nil || s.ending {
		return nil, false
	}
	d := it.delivery
	if s.expire(it, now) {
		return nil, true
	}
	if d.Attempts >= s.r.Retry.MaxAttempts {
		s.giveUpOn(it)
		return nil, true
	}
	t = &trial{recorded: make(chan struct{}), over: make(chan struct{})}
	it.trial, s.trying = t, it
	s.r.log.Info("message is tried alone", "shard", s.shard, "seq", d.Seq, "id", d.Message.ID, "deaths", s.deaths, "attempts", d.Attempts)
	s.note(it, Outcome{State: outbox.StateRetrying, Attempts: d.Attempts + 1,
		Error: fmt.Sprintf("tried alone, since the relay died %d times in a row; if it stays so, it died of this", s.deaths)})
	if it.gated && !it.free {
		s.blockFollowers(it)
	}
	s.trials = append(s.trials, t)
	return t, true
}

// nextDangerous takes the first one whose destination is there, as far as is
// known: nobody has to wait for one that is away.
func (s *session) nextDangerous() *item {
	for range s.dangerous.len() {
		it := s.dangerous.pop()
		if !s.outletFor(&it.delivery.Message).to.breaker.open {
			return it
		}
		s.dangerous.push(it)
	}
	return nil
}

// giveUpOn fails a message whose last attempts were all recorded before they were
// made, and that nothing was heard of since.
func (s *session) giveUpOn(it *item) {
	o := Outcome{State: outbox.StateFailed, Attempts: it.delivery.Attempts,
		Error: fmt.Sprintf("the relay died while it published this message, at the last of %d attempts", it.delivery.Attempts)}
	s.r.failures.add(s.shard, it.delivery, o)
	s.refused(it, o)
}

// note has something recorded of a message that stays in hand.
func (s *session) note(it *item, o Outcome) {
	d := it.delivery
	o.Kept, o.Delivery = true, *d
	if it.key != "" && o.Closes(s.r.OnFailure == Hold) {
		s.close(it, o.State)
		it.counted = true
	}
	d.Parked = true
	if d.Place == PlaceNext {
		d.Place = PlaceKept
	}
	s.outcomes = append(s.outcomes, o)
	s.kept++
	s.hurry = true
	signal(s.wake)
	signal(s.full)
}

// called notes that a Publish call with the message has ended. One that came to
// nothing, since its destination is away, spends no attempt.
func (s *session) called(it *item) {
	t := it.trial
	if t == nil || t.called {
		return
	}
	t.called = true
	if !t.ended {
		t.ended = true
		s.takeBack(it)
		s.overs = append(s.overs, t)
	}
}

// takeBack has the attempt of a trial, which was recorded before, taken back.
func (s *session) takeBack(it *item) {
	s.note(it, Outcome{State: outbox.StatePending, Attempts: it.delivery.Attempts, RetryAfter: time.Millisecond})
}

// abandon takes the attempt of the last trial back if it was never made. It is
// for the end of the session, when nothing is being published any more.
func (s *session) abandon() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if it := s.trying; it != nil && it.trial.committed && !it.trial.called && !it.trial.ended && !s.spoiled && s.publishing == 0 {
		s.takeBack(it)
	}
}

// recordedTrials tells those who wait that what the last settle was given is on
// record.
func recordedTrials(begun, over []*trial) {
	for _, t := range begun {
		t.committed = true
		close(t.recorded)
	}
	for _, t := range over {
		close(t.over)
	}
}
