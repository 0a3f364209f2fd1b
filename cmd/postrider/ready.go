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

	mu    sync.Mutex
	asked time.Time
	last  error // of asking the database
}

// askEvery bounds what requests to /readyz cost the database.
const askEvery = 500 * time.Millisecond

// reasons says why messages would not flow; none if they do.
func (r *readiness) reasons() []string {
	if r.ctx.Err() != nil {
		return []string{"stopping"}
	}
	var reasons []string
	if err := r.ask(); err != nil {
		reasons = append(reasons, "the database does not answer: "+oneText(err))
	}
	stats := r.relay.Stats()
	if len(stats.Routes) == 0 && reasons == nil {
		reasons = append(reasons, "starting")
	}
	for _, route := range stats.Routes {
		if route.Paused {
			continue // it is to stand still
		}
		switch {
		case route.Alarm:
			reasons = append(reasons, fmt.Sprintf("route %s: an operator has to act: %s", route.Name, config.Redact(route.LastError)))
		case route.BreakerOpen:
			reasons = append(reasons, fmt.Sprintf("route %s: its destination is away since %s: %s",
				route.Name, route.BreakerSince.UTC().Format(time.RFC3339), config.Redact(route.LastError)))
		}
		for _, shard := range route.ShardsFailing {
			reasons = append(reasons, fmt.Sprintf("route %s: shard %d stands still since %s: %s",
				route.Name, shard.Shard, shard.Since.UTC().Format(time.RFC3339), config.Redact(shard.Error)))
		}
	}
	return reasons
}

func (r *readiness) ask() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.asked) < askEvery {
		return r.last
	}
	ctx, cancel := context.WithTimeout(r.ctx, 3*time.Second)
	defer cancel()
	r.last = r.db.Ping(ctx)
	r.asked = time.Now()
	return r.last
}
