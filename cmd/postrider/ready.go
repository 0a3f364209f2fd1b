package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/relay"
)

// readiness answers whether messages flow. Safe for concurrent use.
type readiness struct {
	ctx   context.Context // ends when the relay is told to stop
	relay *relay.Relay
	db    database
	log   *logWatch // nil: none

	mu    sync.Mutex
	asked time.Time
	last  error // of asking the database
}

// What requests to /readyz cost the database at most: while it is away each is
// another connect.
const (
	askEvery     = 500 * time.Millisecond
	askAwayEvery = 2 * time.Second
)

// ask says why messages would not flow, nothing if they do, and what else is to
// be known: a destination among several that is away, routes that an operator
// paused, and what somebody has changed about the log.
func (r *readiness) ask() (reasons, notes []string) {
	if r.ctx.Err() != nil {
		return []string{"stopping"}, nil
	}
	if err := r.ping(); err != nil {
		reasons = append(reasons, "the database does not answer: "+oneText(err))
	}
	stats := r.relay.Stats()
	if len(stats.Routes) == 0 && reasons == nil {
		reasons = append(reasons, "starting")
	}
	for i := range stats.Routes {
		bad, note := routeReasons(&stats.Routes[i])
		reasons, notes = append(reasons, bad...), append(notes, note...)
	}
	return reasons, append(notes, r.log.notes()...)
}

func routeReasons(route *relay.RouteStats) (reasons, notes []string) {
	say := func(to *[]string, format string, args ...any) {
		*to = append(*to, "route "+route.Name+": "+config.Redact(fmt.Sprintf(format, args...)))
	}
	if route.Paused {
		say(&notes, "an operator paused it: postrider resume %s", shell(route.Name))
	}
	// One destination of several that is away is a reason to look, and none to
	// say that the relay does not work.
	to := &reasons
	if route.DestinationsKnown > 1 && route.DestinationsAway < route.DestinationsKnown {
		to = &notes
	}
	named := false
	for _, d := range route.Destinations {
		name := "its destination"
		if d.Name != "" {
			name = "its destination " + d.Name
		}
		switch {
		case d.Alarm:
			say(to, "an operator has to act: %s: %s", name, d.Error)
		case !d.Since.IsZero():
			say(to, "%s is away since %s: %s", name, since(d.Since), d.Error)
		default:
			continue
		}
		named = true
	}
	switch {
	case named:
	case route.Alarm:
		say(to, "an operator has to act: %s", route.LastError)
	case route.BreakerOpen:
		say(to, "its destination is away since %s: %s", since(route.BreakerSince), route.LastError)
	}
	if !route.ReadingStopped.IsZero() {
		say(&reasons, "it has read nothing since %s: too many messages wait for destinations that are away", since(route.ReadingStopped))
	}
	for _, shard := range route.ShardsFailing {
		say(&reasons, "shard %d stands still since %s: %s", shard.Shard, since(shard.Since), shard.Error)
	}
	return reasons, notes
}

func since(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (r *readiness) ping() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	every := askEvery
	if r.last != nil {
		every = askAwayEvery
	}
	if time.Since(r.asked) < every {
		return r.last
	}
	ctx, cancel := context.WithTimeout(r.ctx, 3*time.Second)
	defer cancel()
	r.last = r.db.Ping(ctx)
	r.asked = time.Now()
	return r.last
}
