package relay

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

const (
	// lookEvery is how often a relay looks at the roster, unless a third of the
	// lease is shorter.
	lookEvery = 500 * time.Millisecond
	// tryEvery is how often it tries what others have on a store without one.
	tryEvery = 2 * time.Second
)

// lookout keeps this relay on the roster and its portions in line with it.
type lookout struct {
	relay  *Relay
	sharer Sharer // nil: the store has no roster
	shards int
	self   Member

	gate    storeGate // of its own: a roster that fails must not delay leases
	members []Member  // as last seen
	seen    time.Time // when that was; zero: never
	eager   time.Time // until then every look may find a lease that has run out
	failing bool
}

func newLookout(r *Relay, shards int) *lookout {
	l := &lookout{relay: r, shards: shards, self: Member{Owner: r.config.Owner}, gate: storeGate{turn: make(chan struct{}, 1)}}
	l.sharer, _ = capability[Sharer](r.config.Store)
	for _, route := range r.config.Routes {
		l.self.Routes = append(l.self.Routes, route.Name)
	}
	return l
}

// run looks until ctx ends, and takes this relay off the roster then: what it
// gives up in its stop can be taken at once.
func (l *lookout) run(ctx context.Context) {
	every := min(tryEvery, l.relay.config.Lease/3)
	if l.sharer != nil {
		every = min(lookEvery, l.relay.config.Lease/3)
	}
	for ctx.Err() == nil {
		l.look(ctx)
		pause(ctx, jittered(every))
	}
	if l.sharer != nil {
		l.leave()
	}
}

// look brings the portions in line with the roster.
func (l *lookout) look(ctx context.Context) {
	if l.sharer == nil {
		l.apply(Roster{Members: []Member{l.self}})
		return
	}
	var roster Roster
	err := l.gate.do(ctx, func() (err error) {
		// Not cut off by a stop: what reaches the store after Leave would put
		// this relay on the roster again.
		ctx, cancel := context.WithTimeout(l.relay.recording, l.relay.config.Lease)
		defer cancel()
		roster, err = l.sharer.Look(ctx, l.self, l.relay.config.Lease)
		return err
	})
	switch {
	case err == nil:
		if l.failing {
			l.relay.config.Logger.Info("other relays can be seen again")
		}
		l.failing = false
		l.apply(roster)
	case ctx.Err() != nil:
	default:
		if !l.failing {
			l.relay.config.Logger.Warn("other relays cannot be seen", "error", describe(err))
		}
		l.failing = true
		if time.Since(l.seen) > l.relay.config.Lease && !l.relay.gate.away() {
			// The store works, but for its roster: who does not see the others
			// must not leave their shards alone.
			l.apply(Roster{Members: []Member{l.self}, Paused: l.relay.pausedRoutes()})
		}
	}
}

// apply works out this relay's part and sets it.
func (l *lookout) apply(roster Roster) {
	now := time.Now()
	if !l.failing {
		l.seen = now
	}
	if !slices.ContainsFunc(roster.Members, func(m Member) bool { return m.Owner == l.self.Owner }) {
		roster.Members = append(roster.Members, l.self)
	}
	changed := !slices.EqualFunc(roster.Members, l.members, func(a, b Member) bool {
		return a.Owner == b.Owner && slices.Equal(a.Routes, b.Routes)
	})
	if changed {
		l.members = roster.Members
		// Leases of who has left may last a little longer than its membership.
		l.eager = now.Add(l.relay.config.Lease + time.Second)
	}
	l.relay.noteRoster(l, len(roster.Members))
	division := divide(roster.Members, l.shards)
	for _, route := range l.relay.running() {
		quota := division[route.Name][l.self.Owner]
		paused := slices.Contains(roster.Paused, route.Name)
		l.tell(route, quota, paused, len(division[route.Name]))
		route.portion.set(quota, paused, changed, now)
	}
}

// tell logs what is new about a route.
func (l *lookout) tell(route *route, quota int, paused bool, members int) {
	before, wasPaused := route.portion.state()
	if quota != before && l.sharer != nil {
		level := slog.LevelInfo
		if before == 0 && quota == l.shards {
			level = slog.LevelDebug // alone, as most are: no news
		}
		route.log.Log(context.Background(), level, "this relay's part of the shards has changed",
			"shards", l.shards, "part", quota, "before", before, "relays", members)
	}
	if paused && !wasPaused {
		route.log.Info("route paused by an operator")
	}
	if !paused && wasPaused {
		route.log.Info("route resumed")
	}
}

func (l *lookout) leave() {
	ctx, cancel := context.WithTimeout(l.relay.recording, min(l.relay.config.Lease, 5*time.Second))
	defer cancel()
	if err := l.sharer.Leave(ctx, l.self.Owner); err != nil {
		l.relay.config.Logger.Warn("not taken off the roster, others wait until that has run out", "error", describe(err))
	}
}

// noteRoster keeps what others want to know of the last look.
func (r *Relay) noteRoster(l *lookout, members int) {
	if l.sharer == nil || l.failing {
		members = 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members, r.eager = members, l.eager
}

// pausedRoutes are the names of the routes that were paused at the last look.
func (r *Relay) pausedRoutes() (names []string) {
	for _, route := range r.running() {
		if _, paused := route.portion.state(); paused {
			names = append(names, route.Name)
		}
	}
	return names
}
