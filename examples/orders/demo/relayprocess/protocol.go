// Package relayprocess runs the demo's relay as a process of its own, so that it
// can be killed as a machine is: without a chance to settle anything. The child
// is this same program with a hidden command; it does what `postrider relay`
// does, and tells its parent on its standard output what it publishes.
package relayprocess

import "time"

// Command is the hidden command of this program that Main belongs to.
const Command = "demo-relay"

// Variables of the child's environment. They are not arguments, because a
// database's URL may have a password in it.
const (
	variableDB       = "ORDERS_RELAY_DB"
	variableTo       = "ORDERS_RELAY_TO"
	variableEndpoint = "ORDERS_RELAY_ENDPOINT"
)

// Settings are what the child needs.
type Settings struct {
	// DB is the database: postgres://… or sqlite:PATH.
	DB string
	// To is the ARN of a topic of SNS or a queue of SQS.
	To string
	// Endpoint is the base URL of the emulated AWS.
	Endpoint string
}

// What a report is about.
type kind string

const (
	taken   kind = "taken"   // a publish of the messages begins
	sent    kind = "sent"    // the broker acknowledged the messages
	refused kind = "refused" // it did not
	status  kind = "status"
)

// report is one line of the child's.
type report struct {
	Kind   kind      `json:"kind"`
	At     time.Time `json:"at"`
	Keys   []string  `json:"keys,omitempty"` // of the messages
	Status *Status   `json:"status,omitempty"`
}

// Status is how the relay is.
type Status struct {
	// Ready: it has all shards.
	Ready bool `json:"ready"`
	// Away: the broker is, or was when last tried. Error is what it said.
	Away  bool   `json:"away"`
	Error string `json:"error,omitempty"`
	// Unavailable counts publishes that found the broker away; they spend no
	// attempt. Retried counts those that did.
	Unavailable uint64 `json:"unavailable"`
	Retried     uint64 `json:"retried"`
	// Loose is how many messages may be published again after the stop that
	// the child has made.
	Loose int `json:"loose,omitempty"`
}
