package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/relay"
)

// Sharing is the suite for stores that are a relay.Sharer: who is on the roster,
// in which order, for how long, and which routes are paused. It needs
// Harness.SetPaused.
func Sharing[Tx any](t *testing.T, factory Factory[Tx]) {
	runStoreTests(t, factory, sharingTests[Tx]())
}

func sharingTests[Tx any]() []storeTest[Tx] {
	return []storeTest[Tx]{
		{name: "whoever looks is on the roster", run: func(r *storeRig[Tx]) {
			r.roster(r.h.Store, "one").is("one")
			r.roster(r.h.Store, "one").is("one")
		}},
		{name: "all see the same, in the order of joining", run: func(r *storeRig[Tx]) {
			second := r.second()
			r.roster(second, "zeta")
			r.tick()
			r.roster(r.h.Store, "alpha")
			r.tick()
			r.roster(second, "mu")
			for range 3 {
				r.roster(r.h.Store, "alpha").is("zeta", "alpha", "mu")
				r.roster(second, "zeta").is("zeta", "alpha", "mu")
				r.roster(second, "mu").is("zeta", "alpha", "mu")
			}
		}},
		{name: "leaving takes effect at once", run: func(r *storeRig[Tx]) {
			second := r.second()
			r.roster(r.h.Store, "one")
			r.tick()
			r.roster(second, "two").is("one", "two")
			r.leave(r.h.Store, "one")
			r.roster(second, "two").is("two")
			r.leave(r.h.Store, "one")
			r.leave(second, "who was never there")
			r.tick()
			r.roster(r.h.Store, "one").is("two", "one")
			r.roster(second, "two").is("two", "one")
		}},
		{name: "one that was taken off by others comes back", run: func(r *storeRig[Tx]) {
			second := r.second()
			r.roster(r.h.Store, "one").is("one")
			r.leave(second, "one")
			r.roster(r.h.Store, "one").is("one")
			r.tick()
			r.roster(second, "two").is("one", "two")
		}},
		{name: "without a sign of life it is gone when its time is over", run: func(r *storeRig[Tx]) {
			const short = 600 * time.Millisecond
			began := time.Now()
			r.look(r.h.Store, relay.Member{Owner: "dead", Routes: []string{"route"}}, short)
			r.tick()
			first := r.roster(r.second(), "alive")
			if took := time.Since(began); took < short*2/3 {
				first.is("dead", "alive")
			}
			gone := began.Add(short)
			for r.roster(r.h.Store, "alive").has("dead") {
				if time.Since(gone) > patience {
					r.tb.Fatalf("still on the roster %v after its end", time.Since(gone))
				}
			}
			if early := time.Until(began.Add(short * 2 / 3)); early > 0 {
				r.tb.Fatalf("gone %v too early", early)
			}
			// It joins as one that is new.
			r.look(r.h.Store, relay.Member{Owner: "dead", Routes: []string{"route"}}, longTTL)
			r.roster(r.h.Store, "alive").is("alive", "dead")
			r.roster(r.h.Store, "dead").is("alive", "dead")
		}},
		{name: "who goes on looking stays, and keeps its place", run: func(r *storeRig[Tx]) {
			const short = 600 * time.Millisecond
			other := r.second()
			r.look(r.h.Store, relay.Member{Owner: "one"}, short)
			last := time.Now()
			r.tick()
			for end := last.Add(2 * short); last.Before(end); {
				if roster := r.roster(other, "two"); roster.has("one") {
					roster.is("one", "two")
					before := time.Now()
					r.look(r.h.Store, relay.Member{Owner: "one"}, short)
					last = before
				} else if time.Since(last) < short*2/3 {
					r.tb.Fatalf("off the roster %v after a look", time.Since(last))
				} else {
					r.t.Log("the machine stood still for longer than the time to live: nothing is learnt")
					return
				}
			}
		}},
		{name: "routes are told, and what changes of them", run: func(r *storeRig[Tx]) {
			for _, routes := range [][]string{{"a", "b"}, {"b"}, {}, {`"quoted", {braced}`, "", "späte Post", `back\slash`, "null"}} {
				r.look(r.h.Store, relay.Member{Owner: "one", Routes: routes}, longTTL)
				for _, m := range r.look(r.second(), relay.Member{Owner: "two"}, longTTL).Members {
					if m.Owner == "one" && !slices.Equal(m.Routes, routes) {
						r.tb.Errorf("routes %q, want %q", m.Routes, routes)
					}
				}
			}
			const strange = `o'ne "two", {three} ✓ \`
			r.roster(r.h.Store, strange)
			if roster := r.roster(r.second(), "two"); !roster.has(strange) {
				r.tb.Errorf("%q is not on the roster %+v", strange, roster.Members)
			}
		}},
		{name: "many at once agree", run: func(r *storeRig[Tx]) {
			const relays = 8
			stores := []relay.Store{r.h.Store, r.second()}
			var all sync.WaitGroup
			errs := make(chan error, relays)
			for i := range relays {
				all.Go(func() {
					for range 10 {
						self := relay.Member{Owner: fmt.Sprint("relay ", i), Routes: []string{"route"}}
						if _, err := stores[i%2].(relay.Sharer).Look(r.ctx, self, longTTL); err != nil {
							errs <- err
							return
						}
					}
				})
			}
			all.Wait()
			close(errs)
			for err := range errs {
				r.ok("look", err)
			}
			want := r.roster(stores[0], "relay 0").owners()
			if len(want) != relays {
				r.tb.Fatalf("on the roster are %q", want)
			}
			for i := range relays {
				r.roster(stores[i%2], fmt.Sprint("relay ", i)).is(want...)
			}
		}},
		{name: "paused routes are told until they are resumed", run: func(r *storeRig[Tx]) {
			second := r.second()
			pause := func(route string, paused bool) { r.tb.Helper(); r.ok("pause", r.h.SetPaused(r.ctx, route, paused)) }
			r.roster(r.h.Store, "one").pauses()
			pause("a", true)
			pause(`strange "route"`, true)
			r.roster(r.h.Store, "one").pauses("a", `strange "route"`)
			r.roster(second, "two").pauses("a", `strange "route"`)
			pause("a", false)
			r.roster(second, "two").pauses(`strange "route"`)
			pause(`strange "route"`, false)
			r.roster(r.h.Store, "one").pauses()
		}},
		{name: "leases do not depend on it", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a")...)
			r.roster(r.h.Store, "two")
			lease := r.acquire(owner("one"))
			r.held(r.second(), owner("two"))
			r.settle(lease, sent(r.expect(lease, "a")...)...)
		}},
	}
}

// seenRoster is a roster with the rig that it is checked with.
type seenRoster[Tx any] struct {
	relay.Roster
	r *storeRig[Tx]
}

// roster is what the owner, which serves one route, sees.
func (r *storeRig[Tx]) roster(store relay.Store, owner string) seenRoster[Tx] {
	r.tb.Helper()
	return seenRoster[Tx]{r.look(store, relay.Member{Owner: owner, Routes: []string{"route"}}, longTTL), r}
}

func (r *storeRig[Tx]) look(store relay.Store, self relay.Member, ttl time.Duration) relay.Roster {
	r.tb.Helper()
	roster, err := r.sharer(store).Look(r.ctx, self, ttl)
	r.ok("look", err)
	return roster
}

func (r *storeRig[Tx]) leave(store relay.Store, owner string) {
	r.tb.Helper()
	r.ok("leave", r.sharer(store).Leave(r.ctx, owner))
}

func (r *storeRig[Tx]) sharer(store relay.Store) relay.Sharer {
	r.tb.Helper()
	sharer, ok := store.(relay.Sharer)
	if !ok {
		r.tb.Fatalf("%T is no relay.Sharer", store)
	}
	return sharer
}

// tick waits until the store's clock has moved, which some tick in
// milliseconds.
func (r *storeRig[Tx]) tick() {
	r.tb.Helper()
	for begun := r.now(); r.now().Sub(begun) < time.Millisecond; {
		time.Sleep(100 * time.Microsecond)
	}
}

func (s seenRoster[Tx]) owners() (owners []string) {
	for _, m := range s.Members {
		owners = append(owners, m.Owner)
	}
	return owners
}

func (s seenRoster[Tx]) has(owner string) bool { return slices.Contains(s.owners(), owner) }

func (s seenRoster[Tx]) is(want ...string) {
	s.r.tb.Helper()
	if got := s.owners(); !slices.Equal(got, want) {
		s.r.tb.Fatalf("on the roster are %q, want %q", got, want)
	}
}

func (s seenRoster[Tx]) pauses(want ...string) {
	s.r.tb.Helper()
	slices.SortFunc(s.Paused, strings.Compare)
	if !slices.Equal(s.Paused, want) {
		s.r.tb.Fatalf("paused are %q, want %q", s.Paused, want)
	}
}
