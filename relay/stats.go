package relay

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Stats are the relay's counters since New, and its state.
type Stats struct {
	Routes []RouteStats // in the order of Config.Routes
	// StoreFailures counts leases that could not be asked for because the
	// store did not answer.
	StoreFailures uint64
	// Members is how many relays are at work on the store, this one included,
	// as last seen. 0: they cannot be seen, or the store does not tell.
	Members int
	// Clean is of the deleting of old messages.
	Clean CleanStats
}

// RouteStats are one route's. Counters only grow.
type RouteStats struct {
	Name string

	Received    uint64 // handed out by the store
	Sent        uint64 // acknowledged by the broker
	Retried     uint64 // refused this time, to be tried again
	Failed      uint64 // given up
	Blocked     uint64 // parked behind an earlier message of their key
	Scheduled   uint64 // parked until their time
	Expired     uint64 // too late to be sent
	Unavailable uint64 // results that said the broker is away; no attempt was spent
	Fenced      uint64 // stale writes refused because another relay had the lease
	LeasesLost  uint64 // leases that ended with an error, fenced ones included
	// DuplicatesPossible counts messages that may have been published without
	// a record of it, so that they are perhaps published again.
	DuplicatesPossible uint64

	InFlight      int // received and not settled yet
	InFlightBytes int64
	// Limits are the route's part of Config.Limits.
	Limits Limits
	// RateWait is how long publishing has waited for Route.Rate in all.
	RateWait time.Duration
	// OldestInFlight is when the message was received that has been without
	// an outcome for longest; zero if there is none.
	OldestInFlight time.Time
	ShardsHeld     int
	// Quota is how many shards are this relay's part, as last worked out.
	// ShardsHeld follows it, once other relays have given up what is above
	// theirs.
	Quota int
	// HandedOver counts shards that were given up, all settled, because they
	// were above the quota or the route was paused.
	HandedOver uint64
	// Paused: an operator wants nothing published on the route. What comes in
	// waits.
	Paused bool
	// ShardsFailing are the shards whose messages stand still because of the
	// store, by number: its last answer about them was an error. One leaves the
	// list once something is settled, or its lease renewed, or found to be
	// another relay's.
	ShardsFailing []ShardFailure

	// What follows, to ReadingStopped, is not set, except DestinationsKnown and
	// Pending, while the route is paused or this relay has none of its shards.

	// BreakerOpen: the broker is away, or was when last tried. Of a route with
	// several destinations: at least one of them; the others go on.
	BreakerOpen  bool
	BreakerSince time.Time
	// Alarm: waiting will not mend it; an operator has to act.
	Alarm bool
	// DestinationsKnown is to how many the route has published lately,
	// DestinationsAway how many of them are away.
	DestinationsKnown, DestinationsAway int
	// Destinations are those that are away, longest first, and then those that
	// are too slow for the others: 20 at most.
	Destinations []DestinationStats
	// Pending counts the times that a message was parked as pending because its
	// destination was away or slow.
	Pending uint64
	// ReadingStopped is since when the route reads no more because too many
	// messages are parked for destinations that are away; zero if it reads.
	ReadingStopped time.Time
	// LastError of a publish or of a lease, for people; credentials in URLs
	// are blotted out. Empty if there was none.
	LastError   string
	LastErrorAt time.Time
}

// ShardFailure is why a shard of a route stands still.
type ShardFailure struct {
	Shard int
	// Since is when the first of the errors in a row was.
	Since time.Time
	// Error is the last one, for people; credentials in URLs are blotted out.
	Error string
}

// Stats may be called at any time, by anyone.
func (r *Relay) Stats() Stats {
	out := Stats{StoreFailures: r.gate.count()}
	r.mu.Lock()
	out.Members = r.members
	r.mu.Unlock()
	for _, route := range r.running() {
		out.Routes = append(out.Routes, route.snapshot())
	}
	if r.janitor != nil {
		out.Clean = r.janitor.snapshot()
	}
	return out
}

func (r *route) snapshot() RouteStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.stats
	out.InFlight, out.InFlightBytes = 0, 0
	for _, s := range r.sessions {
		out.InFlight += s.inHand
		out.InFlightBytes += s.inHandBytes
		s.forgetPages()
		if len(s.pages) > 0 && (out.OldestInFlight.IsZero() || s.pages[0].at.Before(out.OldestInFlight)) {
			out.OldestInFlight = s.pages[0].at
		}
	}
	out.Quota, out.Paused = r.portion.state()
	for _, shard := range slices.Sorted(maps.Keys(r.failing)) {
		out.ShardsFailing = append(out.ShardsFailing, r.failing[shard])
	}
	r.destinationStats(&out)
	return out
}

// forgetPages drops the pages whose messages all have an outcome from the
// front of the list.
func (s *session) forgetPages() {
	n := 0
	for n < len(s.pages) && s.pages[n].left == 0 {
		n++
	}
	if n > 0 {
		s.pages = append(s.pages[:0], s.pages[n:]...)
	}
}

func (s *RouteStats) noteError(err error, now time.Time) {
	s.LastError, s.LastErrorAt = describe(err), now
}

// describeName is a destination's name for people.
func describeName(name string) string { return describe(errors.New(name)) }

// maxErrorText is how many bytes of an error are kept.
const maxErrorText = 1000

var userInfo = regexp.MustCompile(`(://[^\s/@:]*):[^\s/@]*@`)

// describe is an error's text for people and for the store: of bounded
// length, valid in any database, and without passwords in URLs.
func describe(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	if strings.Contains(text, "://") {
		text = userInfo.ReplaceAllString(text, "$1:xxxxx@")
	}
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return text
}
