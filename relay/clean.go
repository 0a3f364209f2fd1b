package relay

import (
	"context"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
)

// Keep, as a field of Retention, keeps for ever.
const Keep time.Duration = -1

// DefaultRetentionSent is how long sent messages are kept.
const DefaultRetentionSent = 24 * time.Hour

// Retention says how long messages are kept that nobody waits for any more. What
// a route has not sent is never deleted.
type Retention struct {
	// Sent is how long a message is kept after it was enqueued, once every route
	// has sent it or given it up; and how long an expired or discarded one stays
	// after that. Default DefaultRetentionSent; Keep: for ever. The shortest
	// duration deletes a message as soon as every route has it.
	Sent time.Duration
	// Failed is how long a failed message stays after it failed, and at least
	// until Sent has passed. One that holds its key stays until an operator acts.
	// Default Keep.
	Failed time.Duration
}

// Of is how long a parked message of a state is kept that has ended: failed,
// expired or discarded. For implementations of Cleaner.
func (r Retention) Of(state outbox.State) time.Duration {
	if state == outbox.StateFailed {
		return r.Failed
	}
	return r.Sent
}

// Ends are the states of parked messages that are not kept for ever.
func (r Retention) Ends() (states []outbox.State) {
	for _, state := range []outbox.State{outbox.StateFailed, outbox.StateExpired, outbox.StateDiscarded} {
		if r.Of(state) >= 0 {
			states = append(states, state)
		}
	}
	return states
}

// Cleaner is what a Store may be besides: it deletes old messages. Safe for
// concurrent use; several relays may clean one store.
type Cleaner interface {
	// Clean deletes some of what the retention lets go, in short transactions
	// that no enqueueing waits for, and returns what it deleted, also with an
	// error. It needs the defaults to be filled in.
	Clean(ctx context.Context, keep Retention) (Cleaned, error)
}

// Cleaned is what one Clean did.
type Cleaned struct {
	Log, Parked int64 // messages deleted
	// More: there is more to delete, or to look at, at once.
	More bool
}

// CleanStats are of the deleting of old messages since New.
type CleanStats struct {
	Log, Parked uint64 // messages deleted
	Failures    uint64 // calls that failed
	LastError   string // of the last call; empty if it went well
	LastAt      time.Time
}

const (
	// What may be deleted is looked for a hundred times within the time for which
	// messages are kept, but not more often or more seldom than this.
	cleanAtLeast, cleanAtMost = time.Second, 30 * time.Second
	// cleanTimeout bounds one call: a store that hangs is asked again.
	cleanTimeout = time.Minute
)

// janitor deletes old messages from time to time.
type janitor struct {
	relay   *Relay
	cleaner Cleaner
	keep    Retention

	mu    sync.Mutex
	stats CleanStats
}

// newJanitor returns nil if there is nothing to do, now or ever.
func newJanitor(r *Relay) *janitor {
	cleaner, ok := capability[Cleaner](r.config.Store)
	keep := r.config.Retention
	if !ok || keep.Sent < 0 && keep.Failed < 0 {
		return nil
	}
	return &janitor{relay: r, cleaner: cleaner, keep: keep}
}

// run cleans until ctx ends. It never takes more than about half of its time, so
// that relaying goes before it.
func (j *janitor) run(ctx context.Context) {
	every := j.keep.Sent
	if every < 0 {
		every = j.keep.Failed
	}
	every = min(max(every/100, cleanAtLeast), cleanAtMost)
	failures := 0
	for pause(ctx, jittered(every)) {
		for more := true; more; {
			if j.relay.gate.away() { // who needs the store more asks whether it is back
				break
			}
			begun := time.Now()
			cleaned, err := j.clean(ctx)
			j.note(ctx, cleaned, err)
			if err != nil {
				failures++
				pause(ctx, backoff(failures))
				break
			}
			failures = 0
			more = cleaned.More && pause(ctx, time.Since(begun))
		}
	}
}

func (j *janitor) clean(ctx context.Context) (Cleaned, error) {
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	return j.cleaner.Clean(ctx, j.keep)
}

func (j *janitor) note(ctx context.Context, cleaned Cleaned, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stats.Log += uint64(cleaned.Log)
	j.stats.Parked += uint64(cleaned.Parked)
	if ctx.Err() != nil {
		return // what a stop cuts off is no failure
	}
	j.stats.LastAt = time.Now()
	failing := j.stats.LastError != ""
	j.stats.LastError = ""
	if err != nil {
		j.stats.Failures++
		j.stats.LastError = describe(err)
	}
	switch {
	case err != nil && !failing:
		j.relay.config.Logger.Warn("old messages cannot be deleted", "error", describe(err))
	case err == nil && failing:
		j.relay.config.Logger.Info("old messages can be deleted again")
	}
}

func (j *janitor) snapshot() CleanStats {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stats
}
