package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/outbox"
)

const (
	// settleSoon is how long outcomes are collected when somebody waits for
	// them to be committed, settleLater when nobody does.
	settleSoon  = 5 * time.Millisecond
	settleLater = 25 * time.Millisecond
	// firstPage is how many messages a new lease receives at once. It doubles,
	// up to largestPage, while there is more and the limits allow it.
	firstPage   = 4
	largestPage = 1000
)

// identity tells a shard's messages apart: ids alone may repeat, since whoever
// inserts with SQL chooses them, and numbers alone may be given out again after
// the database went back.
type identity struct {
	seq int64
	id  uuid.UUID
}

func identityOf(d *Delivery) identity { return identity{d.Seq, d.Message.ID} }

// session is one lease being worked on: it receives, the route's workers
// publish, it settles.
type session struct {
	r      *route
	shard  int
	lease  Lease
	ctx    context.Context // ends when nothing new is to be begun
	cancel context.CancelFunc

	wake chan struct{} // there are outcomes
	full chan struct{} // there are many
	done chan struct{} // closed when no more will come

	deaths int           // of the leases before this one, in a row
	danger chan struct{} // there are dangerous messages
	ended  chan struct{} // closed when nothing more will be recorded

	spare    []Outcome // the settling goroutine's, for reuse
	survived bool      // the same's: the deaths are over

	// What follows is guarded by r.mu.

	began       time.Time
	deadline    time.Time
	publishing  int
	ending      bool
	quiet       chan struct{} // closed once ending and nothing is being published
	spoiled     bool          // the lease must not be used any more
	useful      bool          // something was settled with it
	fenced      bool          // a write was refused: another relay has the lease
	inHand      int           // received and not settled
	inHandBytes int64
	pages       []*page

	heads      map[string]*item      // by key, what is in hand of it
	free       map[string]*item      // the same for what has no place in its key's order
	closed     map[string]*closedKey // by key, what is parked of it
	outlets    map[*destination]*outlet
	latest     *outlet                // of them, the one looked for last
	late       bool                   // something could not be published for want of a longer lease
	parkedFor  map[int64]*destination // by number, what is parked because of a destination
	because    *destination           // that is being parked for
	recalled   []int64                // numbers of parked messages that the store is to make due
	dangerous  queue[*item]           // to be tried alone
	trying     *item                  // the last one that was
	untried    map[int64]struct{}     // numbers of dangerous ones that were blocked
	endangered time.Time              // when there were any last

	outcomes     []Outcome
	kept         int           // of them, those of messages that stay in hand
	trials       []*trial      // begun by them
	overs        []*trial      // ended by them
	read         chan struct{} // closed once it is recorded what was read
	outcomeBytes int64
	releases     []*item // heads whose followers wait for the outcomes to be committed
	hurry        bool    // somebody waits for the outcomes to be committed
	failed       []Outcome
	acknowledged map[identity]struct{} // sent under earlier leases that could not record it
}

func (r *route) newSession(ctx context.Context, shard int, lease Lease, acknowledged map[identity]struct{}) *session {
	s := &session{
		r: r, shard: shard, lease: lease,
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1),
		done: make(chan struct{}), quiet: make(chan struct{}),
		began: time.Now(), deadline: lease.Deadline(),
		heads: make(map[string]*item), free: make(map[string]*item), closed: make(map[string]*closedKey),
		outlets: make(map[*destination]*outlet), parkedFor: make(map[int64]*destination),
		acknowledged: acknowledged,
		danger:       make(chan struct{}, 1), ended: make(chan struct{}), endangered: time.Now(),
	}
	if counter, ok := capability[DeathCounter](lease); ok {
		s.deaths = counter.Deaths()
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if r.keyed {
		for key, n := range lease.ClosedKeys() {
			s.closed[key] = &closedKey{count: n}
		}
	}
	return s
}

// run works on the lease until ctx ends or the lease fails, then lets what is
// being published finish, records it, and gives the lease up. The error is the
// lease's.
func (s *session) run() error {
	s.r.enter(s)
	var receiving, settling error
	received, settled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(received)
		defer s.cancel()
		receiving = s.receiveLoop()
	}()
	go func() {
		defer close(settled)
		defer s.cancel()
		settling = s.settleLoop()
	}()
	var trying sync.WaitGroup
	if s.deaths >= trialsAfter {
		trying.Go(s.tryLoop)
	}
	<-s.ctx.Done()
	s.r.leave(s)
	<-received
	if receiving != nil {
		s.spoil() // an error makes the lease unusable: nothing is recorded with it
	}
	select {
	case <-s.quiet:
	case <-s.r.relay.overdue: // a publisher that does not return holds up no stop
	}
	s.abandon()
	close(s.done)
	<-settled
	close(s.ended)
	trying.Wait()
	err := errors.Join(receiving, settling)
	s.giveUp(err)
	return err
}

func (s *session) spoil() {
	s.r.mu.Lock()
	s.spoiled = true
	s.r.mu.Unlock()
}

// giveUp closes the lease and frees what the session had in hand.
func (s *session) giveUp(lost error) {
	ctx, cancel := context.WithTimeout(s.r.relay.recording, s.r.relay.config.Lease)
	defer cancel()
	if err := s.lease.Close(ctx); err != nil && lost == nil {
		s.r.log.Warn("lease not given up, others wait until it has run out", "shard", s.shard, "error", err)
	}
	s.r.mu.Lock()
	messages, bytes := s.inHand, s.inHandBytes
	s.inHand, s.inHandBytes = 0, 0
	s.r.mu.Unlock()
	s.r.budget.release(messages, bytes)
}

func (s *session) receiveLoop() error {
	b := s.r.budget
	size := int64(4 << 10) // of one message; a guess, until some were seen
	want := min(firstPage, s.r.page)
	for {
		if s.cautious() {
			want = min(want, cautiousPage)
		}
		room := b.reserve(s.ctx, want, size)
		if room.messages == 0 {
			return nil
		}
		deliveries, err := s.lease.Receive(s.ctx, room.messages)
		if err != nil || len(deliveries) == 0 {
			b.received(room, 0, 0)
			if s.ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return fmt.Errorf("receive: %w", err)
			}
			pause(s.ctx, settleSoon) // a store that does not block must not make us spin
			continue
		}
		if s.cautious() && !s.noteRead() {
			b.received(room, 0, 0)
			return nil
		}
		s.r.mu.Lock()
		bytes := s.admit(deliveries, time.Now())
		s.kick()
		failed := s.r.takeFailures()
		s.r.mu.Unlock()
		failed.report(s.r.log)
		b.received(room, len(deliveries), bytes)
		size = bytes/int64(len(deliveries)) + 1
		if len(deliveries) >= want {
			want = min(2*want, s.r.page)
		}
	}
}

// kick wakes whoever has something to do now. The caller holds r.mu.
func (s *session) kick() {
	if len(s.outcomes) > 0 {
		signal(s.wake)
		if len(s.outcomes) >= s.r.pile {
			signal(s.full)
		}
	}
	s.r.kick(s)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// settleLoop records outcomes a moment after they come up, and renews the
// lease. It returns once no more will come and all are recorded, or with the
// first error.
func (s *session) settleLoop() error {
	every := s.r.relay.config.Lease / 3
	renewal := time.NewTimer(every)
	defer renewal.Stop()
	moment := time.NewTimer(0)
	defer moment.Stop()
	for {
		last, renew := false, false
		select {
		case <-s.wake:
			last = !s.collect(moment)
		case <-renewal.C:
			renew = true
		case <-s.done:
			last = true
		}
		if s.deaths > 0 && !s.survived {
			s.survive()
		}
		settled, err := s.settle(renew)
		if err == nil && !last {
			err = s.recall()
		}
		if err != nil || last {
			return err
		}
		if settled {
			renewal.Reset(every)
		}
	}
}

// collect waits a moment for more outcomes; false if no more will come.
func (s *session) collect(moment *time.Timer) bool {
	for _, wait := range []time.Duration{settleSoon, settleLater - settleSoon} {
		moment.Reset(wait)
		select {
		case <-moment.C:
		case <-s.full:
			return true
		case <-s.done:
			return false
		}
		s.r.mu.Lock()
		hurry := s.hurry
		s.r.mu.Unlock()
		if hurry {
			break
		}
	}
	return true
}

// settle records the outcomes that there are. With renew it extends the lease
// also if there are none.
func (s *session) settle(renew bool) (settled bool, err error) {
	r := s.r
	r.mu.Lock()
	if s.spoiled || len(s.outcomes) == 0 && !renew && s.read == nil {
		r.mu.Unlock()
		return false, nil
	}
	outcomes, bytes, releases := s.outcomes, s.outcomeBytes, s.releases
	s.outcomes, s.outcomeBytes, s.releases, s.hurry = s.spare[:0], 0, nil, false
	kept, trials, overs, read := s.kept, s.trials, s.overs, s.read
	s.kept, s.trials, s.overs, s.read = 0, nil, nil, nil
	s.spare = nil
	left := time.Until(s.deadline)
	r.mu.Unlock()

	// It is tried past the deadline too: if nobody took the shard that saves
	// repetitions, and if somebody did it is refused, and counted.
	ctx, cancel := context.WithTimeout(r.relay.recording, max(left, r.relay.config.Lease/3))
	err = s.lease.Settle(ctx, outcomes)
	cancel()

	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		s.spoiled, s.failed, s.fenced = true, outcomes, errors.Is(err, ErrFenced)
		return false, fmt.Errorf("settle: %w", err)
	}
	delete(r.failing, s.shard)
	s.deadline = s.lease.Deadline()
	s.useful = s.useful || len(outcomes) > 0
	if time.Since(s.began) > r.relay.config.Lease {
		// What was not handed out again by now had been recorded after all, or
		// waits behind so much that remembering it would cost too much.
		r.stats.DuplicatesPossible += uint64(len(s.acknowledged))
		s.acknowledged = nil
	}
	for _, head := range releases {
		s.advance(head)
	}
	recordedTrials(trials, overs)
	if read != nil {
		close(read)
	}
	s.inHand -= len(outcomes) - kept
	s.inHandBytes -= bytes
	r.budget.release(len(outcomes)-kept, bytes)
	clear(outcomes)
	s.spare = outcomes[:0]
	s.kick()
	return true, nil
}

// loose is what the session leaves behind that may be published again: the
// acknowledged messages that are not recorded as sent, and how many others may
// have arrived without an answer, or are still being published. For after run.
func (s *session) loose() (acknowledged map[identity]struct{}, unanswered, publishing int) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	acknowledged = s.acknowledged
	for _, outcomes := range [][]Outcome{s.failed, s.outcomes} {
		for i := range outcomes {
			if outcomes[i].State != outbox.StateSent {
				continue
			}
			if acknowledged == nil {
				acknowledged = make(map[identity]struct{})
			}
			acknowledged[identityOf(&outcomes[i].Delivery)] = struct{}{}
		}
	}
	for _, o := range s.outlets {
		unanswered += o.unanswered()
	}
	return acknowledged, unanswered, s.publishing
}

// takeAcknowledged reports whether the delivery was sent under an earlier
// lease that could not record it.
func (s *session) takeAcknowledged(d *Delivery) bool {
	if len(s.acknowledged) == 0 {
		return false
	}
	_, ok := s.acknowledged[identityOf(d)]
	delete(s.acknowledged, identityOf(d))
	return ok
}

// pause waits; false if ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
