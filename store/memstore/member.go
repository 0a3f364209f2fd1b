package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/relay"
)

var _ relay.Sharer = (*Store)(nil)

// member is a relay on the roster. The Store's mutex guards it.
type member struct {
	routes  []string
	joined  int       // later ones have greater numbers
	since   time.Time // when it joined
	expires time.Time
}

// Look puts the relay on the roster, as relay.Sharer says.
func (s *Store) Look(ctx context.Context, self relay.Member, ttl time.Duration) (relay.Roster, error) {
	if err := ctx.Err(); err != nil {
		return relay.Roster{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.members, func(_ string, m member) bool { return !now.Before(m.expires) })
	me, ok := s.members[self.Owner]
	if !ok {
		s.joins++
		me.joined, me.since = s.joins, now
	}
	me.routes, me.expires = slices.Clone(self.Routes), now.Add(ttl)
	s.members[self.Owner] = me

	var roster relay.Roster
	owners := slices.SortedFunc(maps.Keys(s.members), func(a, b string) int { return s.members[a].joined - s.members[b].joined })
	for _, owner := range owners {
		roster.Members = append(roster.Members, relay.Member{Owner: owner, Routes: slices.Clone(s.members[owner].routes)})
	}
	roster.Paused = slices.Sorted(maps.Keys(s.paused))
	return roster, nil
}

// Leave takes the relay off the roster, as relay.Sharer says.
func (s *Store) Leave(_ context.Context, owner string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, owner)
	return nil
}

// pause is of a paused route: when, by whom, and why.
type pause struct {
	at       time.Time
	by, note string
}

// setPaused is SetPaused for callers that hold mu; false: it is so already.
func (s *Store) setPaused(route string, paused bool, p pause) bool {
	if _, was := s.paused[route]; was == paused {
		return false
	}
	if paused {
		s.paused[route] = p
	} else {
		delete(s.paused, route)
	}
	return true
}

// SetPaused says whether the route is paused: then no relay reads it.
func (s *Store) SetPaused(route string, paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setPaused(route, paused, pause{at: time.Now()})
}
