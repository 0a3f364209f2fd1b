// Package config reads the operator's settings: command-line flags, POSTRIDER_*
// variables and a YAML file, in that order of precedence, checked together and
// handed out as plain structs. Every problem is reported at once, each with
// where it is and how to mend it. Nothing in a report or in a printed Config
// shows a password.
package config

import (
	"os"
	"time"

	"github.com/postrider/postrider/relay"
)

// Defaults of the settings that the relay has no default for.
const (
	DefaultFile        = "postrider.yaml" // read from the working directory if it is there
	DefaultSchema      = "postrider"
	DefaultHTTP        = "127.0.0.1:8080"
	DefaultConnections = 8
)

// Config is what the operator asked for, complete and valid.
type Config struct {
	// File is the YAML file that was read; empty if none was.
	File string
	// Database is where the messages rest.
	Database Database
	// DirectDatabase is the same database without a pooler between, for what
	// needs a connection of its own; of no Kind where none was named.
	DirectDatabase Database
	// Schema of Postrider's tables in PostgreSQL.
	Schema string
	// Source is how the relay learns of committed rows: "auto" or "poll".
	// ("wal" is refused as long as there is no such source.)
	Source string
	// Lease is how long another relay waits before it takes over from one
	// that died.
	Lease time.Duration
	// HTTP is the address of the listener for health and metrics, or empty:
	// no listener.
	HTTP string
	// HTTPSet: somebody chose the address, so that not being able to listen
	// there is an error. Otherwise it is the default.
	HTTPSet bool
	// Retention says when the relay deletes old messages.
	Retention relay.Retention
	Limits    Limits
	Log       Log
	// Routes in the order of the file. Empty only if Input.Routes was false.
	Routes []Route
	// Warnings are oddities that do not stop anything, such as a variable
	// whose name is nearly one of ours.
	Warnings []Problem
}

// Limits bound what one relay process holds.
type Limits struct {
	InFlightBytes    ByteSize // payload bytes between reading and settling
	InFlightMessages int      // messages between reading and settling
	ParkedPending    int      // messages set aside for destinations that are away
	Connections      int      // to the database
}

// Log says how to log.
type Log struct {
	Format string // "text" or "json"
	Level  string // "debug", "info", "warn" or "error"
}

// Route sends the messages of some topics to one destination.
type Route struct {
	// Name is stable: the route's cursor belongs to it.
	Name string
	// Topics are patterns: "*" within a dot-separated part, "**" any rest.
	Topics      []string
	To          Destination
	Start       string // "beginning" or "now"
	Order       string // "key" or "none"
	Encoding    string // "raw" or "base64"
	OnFailure   string // "release" or "hold"
	Retry       Retry
	Rate        float64 // messages per second; 0: no limit
	Concurrency int     // publishes at a time
	// PublishTimeout bounds one of them; by default half of the lease.
	PublishTimeout time.Duration
	// At is where the route was written, for messages about it.
	At string
}

// Retry says how often and when a refused message is tried again.
type Retry struct {
	MaxAttempts int           // the first one included
	Initial     time.Duration // wait after the first attempt
	Factor      float64       // the wait grows by this, at least 1
	Max         time.Duration // the longest wait
	Jitter      float64       // 0 to 1: how much of a wait is random
}

// Input is everything that Load looks at. Its zero value reads
// ./postrider.yaml, if there is one, and nothing else.
type Input struct {
	// File is the YAML file; empty: POSTRIDER_CONFIG, else ./postrider.yaml
	// if present.
	File string
	// Flags holds the flags that were given, by setting, such as "lease",
	// "database_file", "limits.in_flight_bytes" or "to".
	Flags map[string]string
	// Environ holds variables as "NAME=value", as os.Environ returns them.
	Environ []string
	// ReadFile reads the YAML file and the secrets' files. Nil: os.ReadFile.
	ReadFile func(name string) ([]byte, error)
	// Database: not to have one is a problem.
	Database bool
	// Routes: not to have one is a problem.
	Routes bool
}

func (in *Input) readFile(name string) ([]byte, error) {
	if in.ReadFile != nil {
		return in.ReadFile(name)
	}
	return os.ReadFile(name)
}
