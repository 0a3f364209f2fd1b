package admin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/outbox"
)

// Kind is what a Finding is about.
type Kind string

const (
	KindLog      Kind = "log"      // somebody has changed the log by hand
	KindStuck    Kind = "stuck"    // messages wait although a relay serves the route
	KindOrphaned Kind = "orphaned" // no relay serves the route
	KindFailed   Kind = "failed"   // messages failed
	KindMixed    Kind = "mixed"    // relays serve the route with different topics
	KindUnrouted Kind = "unrouted" // no route takes a topic
	KindPaused   Kind = "paused"   // an operator paused the route
	KindRetrying Kind = "retrying" // messages were refused, and are tried again
)

// Finding is something about a store that somebody should know.
type Finding struct {
	Kind Kind `json:"kind"`
	// Bad: somebody has to do something. Otherwise it may pass, or is meant so.
	Bad   bool   `json:"bad"`
	Route string `json:"route,omitempty"`
	// Text says it, for people. It quotes what the database holds: escape it.
	Text string `json:"text"`
	// Mend is the SQL that mends it, where it is one.
	Mend string `json:"mend,omitempty"`
}

// DefaultMaxAge is how long a message may wait before Findings says so.
const DefaultMaxAge = time.Minute

// Findings returns what is wrong, the worst first. maxAge is how long a message
// may wait for its first outcome; 0: DefaultMaxAge.
func (s *Status) Findings(maxAge time.Duration) []Finding {
	if maxAge <= 0 {
		maxAge = DefaultMaxAge
	}
	bad, other := []Finding{}, []Finding{}
	add := func(kind Kind, isBad bool, route, format string, args ...any) {
		f := Finding{Kind: kind, Bad: isBad, Route: route, Text: fmt.Sprintf(format, args...)}
		if isBad {
			bad = append(bad, f)
		} else {
			other = append(other, f)
		}
	}
	for _, p := range s.Log {
		text := p.Text
		if p.Stops {
			text += "; relays do not read shard " + strconv.Itoa(p.Shard)
		}
		bad = append(bad, Finding{Kind: KindLog, Bad: true, Route: p.Route, Text: text, Mend: p.Mend})
	}
	for i := range s.Routes {
		r := &s.Routes[i]
		age := Age(r.OldestPending, s.At)
		waits := fmt.Sprintf("about %d messages wait", r.Pending)
		if !r.OldestPending.IsZero() {
			waits += ", the oldest for " + Short(age)
		}
		var set string // what is set aside, and waits for a relay too
		for _, state := range []outbox.State{outbox.StateRetrying, outbox.StateBlocked, outbox.StateScheduled} {
			if n, more := r.Count(state); n > 0 {
				set += "; " + messages(n, more) + " " + string(state)
			}
		}
		switch {
		case r.Paused:
			text := "is paused since " + r.PausedAt.UTC().Format(time.RFC3339) + " by " + r.PausedBy
			if r.PausedNote != "" {
				text += " (" + r.PausedNote + ")"
			}
			add(KindPaused, false, r.Name, "%s; %s", text, waits+set)
		case r.Orphaned && (!r.OldestPending.IsZero() || set != ""):
			add(KindOrphaned, true, r.Name, "no relay serves it; %s", waits+set)
		case r.Orphaned:
			add(KindOrphaned, false, r.Name, "no relay serves it; nothing waits")
		case age > maxAge:
			add(KindStuck, true, r.Name, "%s, although a relay serves it: %s", waits, strings.Join(r.Owners(), ", "))
		}
		if relays := r.mixed(); relays != "" {
			add(KindMixed, true, r.Name, "its relays take different topics, and each passes over what the others take: %s", relays)
		}
		if n, more := r.Count(outbox.StateFailed); n > 0 {
			text := messages(n, more) + " failed"
			if b, more := r.Count(outbox.StateBlocked); b > 0 {
				text += ", " + messages(b, more) + " blocked"
			}
			add(KindFailed, true, r.Name, "%s; the latest error: %s", text, orUnknown(r.LastError))
		}
		if n, more := r.Count(outbox.StateRetrying); n > 0 {
			text := messages(n, more) + " refused"
			if !r.Orphaned && !r.Paused {
				text += ", tried again by itself"
			}
			if b, more := r.Count(outbox.StateBlocked); b > 0 {
				text += ", with " + messages(b, more) + " behind"
			}
			add(KindRetrying, false, r.Name, "%s; the latest error: %s", text, orUnknown(r.LastError))
		}
	}
	for _, u := range s.Unrouted {
		add(KindUnrouted, true, "", "no route takes topic %s: %s lately, the newest %s ago", u.Topic, messages(u.Messages, false), Short(Age(u.Newest, s.At)))
	}
	return append(bad, other...)
}

// Owners are the relays that have a lease on the route, each once.
func (r *RouteStatus) Owners() []string {
	var owners []string
	for _, s := range r.Shards {
		if s.Owner != "" && !slices.Contains(owners, s.Owner) {
			owners = append(owners, s.Owner)
		}
	}
	if owners == nil {
		return []string{"none has a lease just now"}
	}
	return owners
}

// mixed tells which relays take which topics, if they do not all take the same.
func (r *RouteStatus) mixed() string {
	var relays, different []string
	for _, s := range r.Shards {
		if s.Owner == "" {
			continue
		}
		topics := strings.Join(s.Topics, ",")
		if relay := s.Owner + " takes " + topics; !slices.Contains(relays, relay) {
			relays = append(relays, relay)
		}
		if !slices.Contains(different, topics) {
			different = append(different, topics)
		}
	}
	if len(different) < 2 {
		return ""
	}
	return strings.Join(relays, ", ")
}

func orUnknown(text string) string {
	if text == "" {
		return "not recorded"
	}
	return text
}

func messages(n int64, more bool) string {
	if more {
		return fmt.Sprintf("more than %d messages", n)
	}
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}

// Short is a length of time for people, of at most two units, such as 3m12s.
func Short(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d >= time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}
