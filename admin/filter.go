package admin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/postrider/postrider/outbox"
)

// Place is a message's place in the log, whatever the route.
type Place struct {
	Shard int   `json:"shard"`
	Seq   int64 `json:"seq"`
}

// String writes the place as ParsePlace reads it: 2/4711.
func (p Place) String() string { return strconv.Itoa(p.Shard) + "/" + strconv.FormatInt(p.Seq, 10) }

// ParsePlace reads SHARD/NUMBER.
func ParsePlace(text string) (Place, error) {
	shard, seq, found := strings.Cut(text, "/")
	a, err1 := strconv.ParseUint(shard, 10, 16)
	b, err2 := strconv.ParseUint(seq, 10, 63)
	if !found || err1 != nil || err2 != nil || b == 0 {
		return Place{}, fmt.Errorf("%q is not a place in the log, such as 2/4711", text)
	}
	return Place{Shard: int(a), Seq: int64(b)}, nil
}

// Ref names one message on one route.
type Ref struct {
	Route string `json:"route"`
	Place
}

// Unknown is the state of a message that the route passed before its topics were
// changed: whether its filter took the message then is not recorded.
const Unknown outbox.State = "unknown"

// States that a message can have on a route, in the order in which people are
// told about them.
var States = []outbox.State{
	outbox.StatePending, outbox.StateRetrying, outbox.StateBlocked, outbox.StateScheduled,
	outbox.StateFailed, outbox.StateExpired, outbox.StateDiscarded, outbox.StateSent, Unknown,
}

// parkedStates are those of messages that have a record of their own.
var parkedStates = []outbox.State{
	outbox.StateRetrying, outbox.StateBlocked, outbox.StateScheduled,
	outbox.StateFailed, outbox.StateExpired, outbox.StateDiscarded,
}

// Filter selects messages on routes. Fields that are zero select everything.
type Filter struct {
	Route string `json:"route,omitempty"`
	// States as they are on each route.
	States []outbox.State `json:"states,omitempty"`
	// Topic is a topic or a pattern, as routes have them.
	Topic string `json:"topic,omitempty"`
	// Key is exact. Nil: any, the empty key included.
	Key  *string `json:"key,omitempty"`
	Type string  `json:"type,omitempty"`
	// IDs of messages; if there are Places too, one or the other.
	IDs []uuid.UUID `json:"ids,omitempty"`
	// Places of messages in the log.
	Places []Place `json:"places,omitempty"`
	// Since and Until bound when messages were enqueued: from Since on, before
	// Until. Numbers of the log are taken to rise with time, give or take an
	// hour of what the database's clock may have been set back.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// Validate reports what no message can fit.
func (f *Filter) Validate() error {
	for _, s := range f.States {
		if !slices.Contains(States, s) {
			return fmt.Errorf("%q is no state: the states are %s", s, join(States))
		}
	}
	texts := []string{f.Route, f.Topic, f.Type}
	if f.Key != nil {
		texts = append(texts, *f.Key)
	}
	for _, t := range texts {
		if !utf8.ValidString(t) || strings.ContainsRune(t, 0) {
			return fmt.Errorf("%q is not valid text: no message has it", t)
		}
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return fmt.Errorf("nothing is from %s on and before %s", f.Since.Format(time.RFC3339), f.Until.Format(time.RFC3339))
	}
	return nil
}

// ParkedOnly reports whether only messages with a record of their own can fit,
// so that the log need not be read. For stores.
func (f *Filter) ParkedOnly() bool {
	return f.Only(parkedStates...)
}

// Only reports whether all the states asked for are among those given. For stores.
func (f *Filter) Only(states ...outbox.State) bool {
	return len(f.States) > 0 && !slices.ContainsFunc(f.States, func(s outbox.State) bool { return !slices.Contains(states, s) })
}

func join(states []outbox.State) string {
	words := make([]string, len(states))
	for i, s := range states {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}
