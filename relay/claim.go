package relay

import (
	"errors"
	"fmt"
	"time"
)

// Start says where a route that has no cursor yet begins.
type Start string

const (
	StartBeginning Start = "beginning" // with the oldest message that is still there
	StartNow       Start = "now"       // with what commits after its cursor exists
)

// Claim asks for one shard of one route.
type Claim struct {
	Route string
	Shard int
	// Owner is unique to the process; shown to people.
	Owner string
	// TTL is how long the lease lasts without a renewal. Positive.
	TTL time.Duration
	// Topics are the route's patterns, as Matcher takes them. Only messages
	// whose topic matches are handed out; the others count as done.
	Topics []string
	// Start applies when the route has no cursor on this shard yet. Empty:
	// StartBeginning.
	Start Start
	// Hold keeps a key closed behind a message that fails (on_failure: hold). A
	// lease without it opens the keys that earlier ones kept closed so; one with
	// it leaves those alone that were open.
	Hold bool
	// Alive: this process has asked for the shard before. So a lease of the same
	// Owner that was not given up ended without a death, and does not count as one.
	Alive bool
}

// Validate reports everything that is wrong with the claim on a store with that
// many shards, and compiles its topics. For implementations of Store.
func (c *Claim) Validate(shards int) (match func(topic string) bool, err error) {
	var errs []error
	if c.Route == "" {
		errs = append(errs, errors.New("the claim names no route"))
	}
	if c.Owner == "" {
		errs = append(errs, errors.New("the claim names no owner"))
	}
	if c.TTL <= 0 {
		errs = append(errs, fmt.Errorf("a lease of %v would be over at once", c.TTL))
	}
	if c.Shard < 0 || c.Shard >= shards {
		errs = append(errs, fmt.Errorf("shard %d does not exist: the store has %d, counted from 0", c.Shard, shards))
	}
	if c.Start != StartBeginning && c.Start != StartNow && c.Start != "" {
		errs = append(errs, fmt.Errorf("start %q: it is %q or %q", c.Start, StartBeginning, StartNow))
	}
	match, err = Matcher(c.Topics)
	return match, errors.Join(append(errs, err)...)
}
