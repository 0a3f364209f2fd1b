package main

import (
	"testing"
	"time"

	"github.com/postrider/postrider/relay"
)

func TestWhatKeepsARelayFromBeingReady(t *testing.T) {
	away := relay.RouteStats{
		Name: "orders", DestinationsKnown: 1, DestinationsAway: 1, BreakerOpen: true, Alarm: true,
		Destinations: []relay.DestinationStats{{Since: time.Unix(0, 0), Alarm: true, Error: "no such queue"}},
	}
	one := away
	one.DestinationsKnown = 2
	for name, tc := range map[string]struct {
		stats          relay.RouteStats
		reasons, notes int
	}{
		"all is well":                    {relay.RouteStats{Name: "orders"}, 0, 0},
		"its destination is away":        {away, 1, 0},
		"one destination of two is away": {one, 0, 1},
		"it is paused":                   {relay.RouteStats{Name: "orders", Paused: true}, 0, 1},
	} {
		if reasons, notes := routeReasons(&tc.stats); len(reasons) != tc.reasons || len(notes) != tc.notes {
			t.Errorf("%s: reasons %q, notes %q", name, reasons, notes)
		}
	}
}
