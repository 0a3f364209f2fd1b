package relay

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Sharer is what a Store may be besides: it tells relays of each other, so that
// they divide the shards of each route evenly among them, and of the routes
// that an operator has paused. On a store that is none every relay takes what
// it can get. It decides only who is to try what: leases keep two relays from
// reading the same shard, whatever a roster says. Safe for concurrent use.
type Sharer interface {
	// Look puts the member on the roster, or keeps it there, and returns the
	// roster, all in one round trip that is cheap enough for twice a second.
	// Without a further Look the member is off it once ttl has passed, or up to
	// a third of it earlier. A member that was taken off by anybody is put on
	// again, as one that joins now.
	Look(ctx context.Context, self Member, ttl time.Duration) (Roster, error)
	// Leave takes the member off the roster at once. It is no error if it is
	// not on it.
	Leave(ctx context.Context, owner string) error
}

// Member is a relay at work.
type Member struct {
	// Owner is its Config.Owner.
	Owner string
	// Routes are the names of its routes, in any order.
	Routes []string
}

// Roster is who is at work on a store.
type Roster struct {
	// Members are all that are alive, in the order in which they joined, which
	// is the same for whoever looks.
	Members []Member
	// Paused are the names of the routes that nobody is to read.
	Paused []string
}

// divide says how many of its shards each member that serves a route is to
// hold, by route and owner. Whoever has the same roster comes to the same
// division: as even as can be for each route, and what is left over goes to
// those that have least so far, so that members with the same routes differ by
// one shard at most over all of them. Members that joined earlier go first, so
// that one that joins or leaves moves as little as possible.
func divide(members []Member, shards int) map[string]map[string]int {
	serving := make(map[string][]int) // by route, the members by their place
	for i, m := range members {
		for _, route := range m.Routes {
			if at := serving[route]; len(at) == 0 || at[len(at)-1] != i {
				serving[route] = append(at, i)
			}
		}
	}
	routes := make([]string, 0, len(serving))
	for route := range serving {
		routes = append(routes, route)
	}
	slices.Sort(routes)
	total := make([]int, len(members))
	division := make(map[string]map[string]int, len(routes))
	for _, route := range routes {
		at := serving[route]
		// Stable, so that of those with the same total the earlier goes first.
		slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(total[a], total[b]) })
		quotas := make(map[string]int, len(at))
		for rank, i := range at {
			quota := shards / len(at)
			if rank < shards%len(at) {
				quota++
			}
			quotas[members[i].Owner] = quota
			total[i] += quota
		}
		division[route] = quotas
	}
	return division
}
