package relay

import (
	"cmp"
	"slices"
	"time"
)

// mostListed is how many destinations RouteStats lists.
const mostListed = 20

// DestinationStats are those of one destination that is away or slow.
type DestinationStats struct {
	// Name as people write it. Empty: all messages of the route go there.
	Name string
	// Since is when it went away; zero if it is only slow.
	Since time.Time
	// Alarm: waiting will not mend it; an operator has to act.
	Alarm bool
	// Error that said that it is away, for people; credentials in URLs are
	// blotted out.
	Error string
	// Parked messages wait for it in the store, pending or blocked behind one
	// that is; as far as this relay has seen them since it has their shard.
	Parked int
}

// destinationStats fills in what is known about the route's destinations. Where
// nothing is published, nobody finds out whether they are still away.
func (r *route) destinationStats(out *RouteStats) {
	out.DestinationsKnown = len(r.destinations)
	out.Pending = r.parking.total
	if out.Paused || len(r.sessions) == 0 {
		return
	}
	out.ReadingStopped = r.parking.since
	for _, d := range r.destinations {
		if !d.stuck() {
			continue
		}
		s := DestinationStats{Name: describeName(d.name), Parked: d.parked}
		if b := &d.breaker; b.open {
			out.DestinationsAway++
			s.Since, s.Alarm = b.since, b.alarm
			out.BreakerOpen = true
			out.Alarm = out.Alarm || b.alarm
			if out.BreakerSince.IsZero() || b.since.Before(out.BreakerSince) {
				out.BreakerSince = b.since
			}
		}
		if d.err != nil {
			s.Error = describe(d.err)
		}
		out.Destinations = append(out.Destinations, s)
	}
	slices.SortFunc(out.Destinations, func(a, b DestinationStats) int {
		if a.Since.IsZero() != b.Since.IsZero() {
			if a.Since.IsZero() {
				return 1
			}
			return -1
		}
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name))
	})
	if len(out.Destinations) > mostListed {
		out.Destinations = slices.Clip(out.Destinations[:mostListed])
	}
}
