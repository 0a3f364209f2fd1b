package admin

import (
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

// StatusOptions bound what a Status costs. The zero value is useful.
type StatusOptions struct {
	// CountUpTo is how many parked messages are counted at most of each state in
	// each shard of a route. Default 100,000.
	CountUpTo int
	// LookBack is how many of the newest messages of each shard are looked
	// through for topics that no route takes. Default 1000.
	LookBack int
}

// Normal returns the options with defaults for what is zero. For stores.
func (o StatusOptions) Normal() StatusOptions {
	if o.CountUpTo <= 0 {
		o.CountUpTo = 100_000
	}
	if o.LookBack <= 0 {
		o.LookBack = 1000
	}
	return o
}

// Status tells how a store and its routes stand.
type Status struct {
	// At is when, by the database's clock.
	At     time.Time     `json:"at"`
	Shards int           `json:"shards"`
	Routes []RouteStatus `json:"routes"`
	// Relays are those that showed a sign of life lately.
	Relays []RelayStatus `json:"relays"`
	// Unrouted are topics of recent messages that no route takes.
	Unrouted []Unrouted `json:"unrouted"`
	Stored   Stored     `json:"stored"`
	// Log is what somebody has changed about the log by hand.
	Log []LogProblem `json:"log,omitempty"`
}

// Stored is what is kept, sent messages included.
type Stored struct {
	// Bytes on the disk, of the messages, or of the whole file where they share it.
	// 0: the store does not tell.
	Bytes int64 `json:"bytes"`
	// Oldest is when the oldest message of the log was enqueued; zero: it is empty.
	Oldest time.Time `json:"oldest_at,omitzero"`
}

// LogProblem is something about a shard's log that somebody has changed by hand
// and that harms.
type LogProblem struct {
	Shard int `json:"shard"`
	// Route is the one that it is about; empty: all.
	Route string `json:"route,omitempty"`
	// Stops: messages would be missed, so relays do not read the shard.
	Stops bool   `json:"stops"`
	Text  string `json:"text"`
	// Mend is the statement that mends it, for the owner of the tables.
	Mend string `json:"mend"`
}

// String tells what is wrong and what mends it.
func (p LogProblem) String() string {
	return p.Text + "; what mends it, for the tables' owner: " + p.Mend
}

// RouteStatus is one route's.
type RouteStatus struct {
	Name string `json:"name"`
	// Topics of all its shards, each once.
	Topics []string `json:"topics"`
	// Paused: an operator stopped it.
	Paused   bool      `json:"paused"`
	PausedAt time.Time `json:"paused_at,omitzero"`
	PausedBy string    `json:"paused_by,omitempty"`
	// PausedNote is why.
	PausedNote string `json:"paused_note,omitempty"`
	// Orphaned: no relay has a lease on any shard of it, and none that shows a
	// sign of life serves it.
	Orphaned bool          `json:"orphaned"`
	Shards   []ShardStatus `json:"shards"`
	// Pending is about how many messages wait for their first outcome: numbers
	// that no transaction used, and messages of other topics, count too.
	Pending int64 `json:"pending"`
	// OldestPending is when the oldest of them was enqueued, or its replay asked
	// for; zero: none waits.
	OldestPending time.Time `json:"oldest_pending_at,omitzero"`
	// Parked counts messages by their state.
	Parked []StateCount `json:"parked"`
	// LastError is that of the parked message with the highest number; for people.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// ShardStatus is one shard of a route.
type ShardStatus struct {
	Shard int `json:"shard"`
	// Owner has the lease; empty if nobody has.
	Owner string `json:"owner"`
	// Topics that the newest lease takes; all relays of a route should have the same.
	Topics     []string  `json:"topics"`
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	// Position is the number up to which the shard was read.
	Position int64 `json:"position"`
	// Tail is the highest number given out.
	Tail int64 `json:"tail"`
	// Unsettled are the numbers up to Position without an outcome.
	Unsettled int64 `json:"unsettled"`
}

// Add adds a shard, and its topics. For stores.
func (r *RouteStatus) Add(s ShardStatus) {
	if s.Topics == nil {
		s.Topics = []string{}
	}
	r.Shards = append(r.Shards, s)
	r.Pending += s.Tail - s.Position + s.Unsettled
	for _, topic := range s.Topics {
		if !slices.Contains(r.Topics, topic) {
			r.Topics = append(r.Topics, topic)
		}
	}
}

// RelayStatus is a relay at work.
type RelayStatus struct {
	Owner    string    `json:"owner"`
	Routes   []string  `json:"routes"`
	JoinedAt time.Time `json:"joined_at"`
	// Expires is when it counts as gone unless it shows a sign of life.
	Expires time.Time `json:"expires_at"`
}

// StateCount counts the parked messages of one state.
type StateCount struct {
	State outbox.State `json:"state"`
	Count int64        `json:"count"`
	// AtLeast: there are more, which were not counted.
	AtLeast bool `json:"at_least,omitempty"`
	// Oldest is when the one with the lowest number was enqueued.
	Oldest time.Time `json:"oldest_at,omitzero"`
}

// Count returns how many messages of a state are parked, and whether that is
// only a lower bound.
func (r *RouteStatus) Count(s outbox.State) (n int64, atLeast bool) {
	for _, c := range r.Parked {
		if c.State == s {
			return c.Count, c.AtLeast
		}
	}
	return 0, false
}

// Unrouted is a topic that no route takes.
type Unrouted struct {
	Topic string `json:"topic"`
	// Messages among the recent ones.
	Messages int64     `json:"messages"`
	Newest   time.Time `json:"newest_at"`
}

// Removed is what a route's removal deleted.
type Removed struct {
	// Pending is about how many messages it had not sent yet.
	Pending int64 `json:"pending"`
	// Parked rows deleted.
	Parked int64 `json:"parked"`
}
