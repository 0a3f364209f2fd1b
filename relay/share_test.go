package relay

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/postrider/postrider/internal/testsize"
)

func checks(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	if err := flag.Set("rapid.checks", strconv.Itoa(testsize.Pick(300, 20_000))); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, property)
}

func drawMembers(t *rapid.T, most int) []Member {
	names := rapid.SliceOfNDistinct(rapid.StringMatching("[a-e]{1,3}"), 1, most, rapid.ID[string]).Draw(t, "members")
	routes := rapid.SliceOfNDistinct(rapid.StringMatching("[r-t]{1,2}"), 1, 6, rapid.ID[string]).Draw(t, "routes")
	members := make([]Member, len(names))
	same := rapid.Bool().Draw(t, "same routes")
	for i, name := range names {
		members[i] = Member{Owner: name, Routes: routes}
		if !same {
			members[i].Routes = rapid.SliceOfN(rapid.SampledFrom(routes), 0, 8).Draw(t, "routes of "+name)
		}
	}
	return members
}

// Whatever the roster: all shards of a route are somebody's if anybody serves
// it, of those that do none has more than one above another, nobody has one of
// a route that it does not serve, and the order in which routes are named
// means nothing.
func TestDivisionIsEvenAndAgreed(t *testing.T) {
	checks(t, func(t *rapid.T) {
		members := drawMembers(t, 12)
		shards := rapid.IntRange(1, 64).Draw(t, "shards")
		division := divide(members, shards)
		serving := make(map[string]map[string]bool)
		for _, m := range members {
			for _, route := range m.Routes {
				if serving[route] == nil {
					serving[route] = make(map[string]bool)
				}
				serving[route][m.Owner] = true
			}
		}
		if !maps.EqualFunc(serving, division, func(a map[string]bool, b map[string]int) bool {
			return slices.Equal(slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)))
		}) {
			t.Fatalf("divided %v, serving are %v", division, serving)
		}
		for route, quotas := range division {
			sum := 0
			least, most := shards, 0
			for _, n := range quotas {
				sum, least, most = sum+n, min(least, n), max(most, n)
			}
			if sum != shards || most-least > 1 {
				t.Errorf("route %s with %d shards is divided %v", route, shards, quotas)
			}
		}
		shuffled := make([]Member, len(members))
		for i, m := range members {
			m.Routes = slices.Clone(m.Routes)
			rand.Shuffle(len(m.Routes), func(a, b int) { m.Routes[a], m.Routes[b] = m.Routes[b], m.Routes[a] })
			shuffled[i] = m
		}
		if again := divide(shuffled, shards); !maps.EqualFunc(division, again, maps.Equal[map[string]int, map[string]int]) {
			t.Errorf("divided %v, and with routes in another order %v", division, again)
		}
	})
}

// Members with the same routes differ by one shard at most over all routes.
func TestDivisionIsEvenOverAllRoutes(t *testing.T) {
	checks(t, func(t *rapid.T) {
		members := make([]Member, rapid.IntRange(1, 12).Draw(t, "members"))
		var routes []string
		for i := range rapid.IntRange(1, 12).Draw(t, "routes") {
			routes = append(routes, fmt.Sprint("route ", i))
		}
		for i := range members {
			members[i] = Member{Owner: fmt.Sprint("relay ", i), Routes: routes}
		}
		totals := make(map[string]int)
		for _, quotas := range divide(members, rapid.IntRange(1, 64).Draw(t, "shards")) {
			for owner, n := range quotas {
				totals[owner] += n
			}
		}
		all := slices.Collect(maps.Values(totals))
		if slices.Max(all)-slices.Min(all) > 1 {
			t.Errorf("the relays have %v", totals)
		}
	})
}

// Of one route nobody has to give anything up when another leaves, and nobody
// gets more when one joins: what moves is what must.
func TestDivisionMovesTheLeast(t *testing.T) {
	checks(t, func(t *rapid.T) {
		var members []Member
		for i := range rapid.IntRange(2, 12).Draw(t, "members") {
			members = append(members, Member{Owner: fmt.Sprint("relay ", i), Routes: []string{"route"}})
		}
		shards := rapid.IntRange(1, 64).Draw(t, "shards")
		all := divide(members, shards)["route"]
		gone := rapid.IntRange(0, len(members)-1).Draw(t, "gone")
		for owner, n := range divide(slices.Delete(slices.Clone(members), gone, gone+1), shards)["route"] {
			if n < all[owner] {
				t.Errorf("%s goes from %d to %d shards because another leaves", owner, all[owner], n)
			}
		}
		for owner, n := range divide(members[:len(members)-1], shards)["route"] {
			if n < all[owner] {
				t.Errorf("%s goes from %d to %d shards because another joins", owner, n, all[owner])
			}
		}
	})
}
