package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Relay publishes what is committed: one loop per route and shard that
// receives from the store, publishes, and settles. Several relays may work on
// one store; each shard of a route is one relay's at a time.
type Relay struct {
	config Config
	gate   storeGate

	publishing context.Context // what publish calls run under
	recording  context.Context // what the store is told under, also after a stop
	alone      chan struct{}   // of capacity one: held by who publishes a message alone
	janitor    *janitor        // nil: there is nothing for one to do
	overdue    chan struct{}   // closed when a stop waits for publishers no longer

	mu      sync.Mutex
	routes  []*route // once Run has begun
	begun   bool
	members int       // on the roster when it was last seen; 0: it was not
	eager   time.Time // until then leases may run out that nobody renews
}

// UnsettledError is what Run returns after a stop that could not record
// everything that was, or may have been, published.
type UnsettledError struct {
	// Messages that may be published once more.
	Messages int
}

func (e *UnsettledError) Error() string {
	return fmt.Sprintf("relay: stopped before everything published was recorded: %d messages may be published again", e.Messages)
}

// New returns a relay that does nothing until Run, or says all that is wrong
// with the configuration.
func New(config Config) (*Relay, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Relay{config: config, overdue: make(chan struct{}), alone: make(chan struct{}, 1), gate: storeGate{turn: make(chan struct{}, 1)}}
	r.janitor = newJanitor(r)
	return r, nil
}

// Run relays until ctx ends. Then it receives nothing more, lets running
// publishes finish, records what they achieved and gives its leases up, for
// all of which it takes Config.Drain at most. It returns nil if everything
// acknowledged is recorded, so that nothing is sent twice, and otherwise an
// *UnsettledError. Neither a store nor a broker that is away ends it.
//
// A Relay runs once; a second call returns an error.
func (r *Relay) Run(ctx context.Context) error {
	r.mu.Lock()
	begun := r.begun
	r.begun = true
	r.mu.Unlock()
	if begun {
		return errors.New("relay: it has run already; make a new one")
	}
	var cutPublishing, cutRecording context.CancelFunc
	r.publishing, cutPublishing = context.WithCancel(context.WithoutCancel(ctx))
	r.recording, cutRecording = context.WithCancel(context.WithoutCancel(ctx))
	defer cutPublishing()
	defer cutRecording()
	finished := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watchStop(ctx, finished, cutPublishing, cutRecording)
	}()
	unsettled := r.work(ctx)
	close(finished)
	<-watched
	if unsettled > 0 {
		return &UnsettledError{Messages: unsettled}
	}
	return nil
}

// watchStop bounds a stop: publishes are cut off early enough to record what
// they achieved.
func (r *Relay) watchStop(ctx context.Context, finished <-chan struct{}, cutPublishing, cutRecording func()) {
	select {
	case <-ctx.Done():
	case <-finished:
		return
	}
	rest := min(r.config.Drain/2, 5*time.Second)
	for _, step := range []struct {
		wait time.Duration
		then func()
	}{
		{r.config.Drain - rest, cutPublishing},
		{rest / 5, func() { close(r.overdue) }},
		{rest - rest/5, cutRecording},
	} {
		timer := time.NewTimer(step.wait)
		select {
		case <-timer.C:
			step.then()
		case <-finished:
			timer.Stop()
			return
		}
	}
}

// work runs all routes and returns how many messages are left unsettled.
func (r *Relay) work(ctx context.Context) (unsettled int) {
	shards, ok := r.shards(ctx)
	if !ok {
		return 0
	}
	r.mu.Lock()
	for _, config := range r.config.Routes {
		r.routes = append(r.routes, newRoute(r, config, shards))
	}
	r.mu.Unlock()
	var total struct {
		sync.Mutex
		unsettled int
	}
	var routes, others sync.WaitGroup
	others.Go(func() { newLookout(r, shards).run(ctx) })
	if r.janitor != nil {
		others.Go(func() { r.janitor.run(ctx) })
	}
	for _, route := range r.routes {
		routes.Go(func() {
			var runners sync.WaitGroup
			for shard := range shards {
				runners.Go(func() {
					n := route.runShard(ctx, shard)
					total.Lock()
					total.unsettled += n
					total.Unlock()
				})
			}
			runners.Wait()
			route.close()
		})
	}
	routes.Wait()
	others.Wait()
	gone := make(chan struct{})
	go func() {
		for _, route := range r.routes {
			route.workers.Wait()
		}
		close(gone)
	}()
	select {
	case <-gone:
	case <-r.overdue: // a publisher that does not return keeps its goroutine
	}
	return total.unsettled
}

// shards asks the store until it answers; false once ctx has ended.
func (r *Relay) shards(ctx context.Context) (n int, ok bool) {
	for ctx.Err() == nil {
		err := r.gate.do(ctx, func() (err error) {
			n, err = r.config.Store.Shards(ctx)
			return err
		})
		if err == nil && n > 0 {
			return n, true
		}
		if ctx.Err() == nil {
			r.config.Logger.Warn("store does not say how many shards it has", "shards", n, "error", err)
		}
		if err == nil && !pause(ctx, retryMax) {
			break
		}
	}
	return 0, false
}

func (r *Relay) running() []*route {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.routes
}

// runShard holds one shard of the route whenever that is this relay's part,
// until ctx ends. It returns how many messages its last lease left unsettled,
// also if another relay has the shard since.
func (r *route) runShard(ctx context.Context, shard int) (unsettled int) {
	config := &r.relay.config
	claim := Claim{
		Route: r.Name, Shard: shard, Owner: config.Owner, TTL: config.Lease,
		Topics: r.Topics, Start: r.Start, Hold: r.OnFailure == Hold,
	}
	failures := 0
	var acknowledged map[identity]struct{}
	for r.portion.ask(ctx, shard, func() { r.noteWell(shard) }) {
		lease, err := r.relay.acquire(ctx, claim)
		switch {
		case errors.Is(err, ErrHeld):
			r.noteWell(shard)
			// What the last lease left unsettled is the other relay's now, which
			// may publish it again.
			r.noteLoose(len(acknowledged))
			acknowledged = nil
			r.portion.refused(shard, r.relay.nextTry())
			continue
		case err != nil:
			if ctx.Err() == nil {
				r.noteFailing(shard, err)
				r.log.Warn("lease not to be had", "shard", shard, "error", describe(err))
			}
			r.portion.failed(shard)
			claim.Alive = true // the store may have given it without an answer
			continue           // the gate makes the next one wait
		}
		r.log.Debug("lease taken", "shard", shard)
		held, done := r.portion.hold(ctx, shard)
		claim.Alive = true
		s := r.newSession(held, shard, lease, acknowledged)
		err = s.run()
		done()
		r.portion.free(shard)
		var unanswered, publishing int
		acknowledged, unanswered, publishing = s.loose()
		unsettled = len(acknowledged) + unanswered + publishing
		r.noteLoose(publishing)
		if err == nil {
			if ctx.Err() == nil {
				r.noteHandedOver()
				r.log.Debug("lease given up", "shard", shard)
			}
			failures = 0
			continue
		}
		r.noteLost(s, err)
		r.log.Warn("lease lost", "shard", shard, "fenced", errors.Is(err, ErrFenced), "error", describe(err))
		if errors.Is(err, ErrFenced) {
			r.noteLoose(len(acknowledged))
			acknowledged = nil
		}
		if s.useful {
			failures = 0
		}
		failures++
		pause(ctx, backoff(failures))
	}
	r.noteLoose(len(acknowledged))
	return unsettled
}

// nextTry is when a shard that another relay has is to be asked for again: at
// the next look while leases may be running out, otherwise later, since then the
// other is only not known to the roster.
func (r *Relay) nextTry() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.members == 0 || now.Before(r.eager) {
		return now
	}
	return now.Add(r.config.Lease / 3)
}

// acquire asks the store for a lease.
func (r *Relay) acquire(ctx context.Context, claim Claim) (lease Lease, err error) {
	err = r.gate.do(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, max(r.config.Lease, acquireTimeout))
		defer cancel()
		lease, err = r.config.Store.Acquire(ctx, claim)
		return err
	})
	return lease, err
}

// noteFailing notes that the store answered with an error about the shard.
func (r *route) noteFailing(shard int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails(shard, err, time.Now())
}

// fails is noteFailing for callers that hold mu.
func (r *route) fails(shard int, err error, now time.Time) {
	r.stats.noteError(err, now)
	f, ok := r.failing[shard]
	if !ok {
		f = ShardFailure{Shard: shard, Since: now}
	}
	f.Error = r.stats.LastError
	r.failing[shard] = f
}

// noteWell notes that the store works for the shard.
func (r *route) noteWell(shard int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failing, shard)
}

func (r *route) noteLost(s *session, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.LeasesLost++
	// A read that was refused changes nothing, and is not counted, unless there
	// was something to be written as well.
	if s.fenced || errors.Is(err, ErrFenced) && len(s.failed)+len(s.outcomes) > 0 {
		r.stats.Fenced++
	}
	r.fails(s.shard, err, time.Now())
}

func (r *route) noteHandedOver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.HandedOver++
}

func (r *route) noteLoose(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.DuplicatesPossible += uint64(n)
}
