// Package conformance holds the suites that every implementation of a seam
// passes: Store and Source for where messages rest, Inbox for the consumer's
// record, and those of publishers and consumers. Each is called in one line from
// the implementation's own test. Only tests import this package.
package conformance

import (
	"context"
	"flag"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// Harness is one fresh, empty store and what the suites need to write into it.
// Tx is the transaction type that applications use with it.
type Harness[Tx any] struct {
	// Store is what is tested.
	Store relay.Store
	// Second opens the same data once more, as another process would. Nil: the
	// data lives in this process alone, and Store stands for both.
	Second func(t testing.TB) relay.Store
	// Inserter writes into the store. If it is an outbox.KeyLocker too, that is
	// tested.
	Inserter outbox.Inserter[Tx]
	// Begin, Commit and Rollback are the application's own transactions.
	Begin    func(ctx context.Context) (Tx, error)
	Commit   func(ctx context.Context, tx Tx) error
	Rollback func(ctx context.Context, tx Tx) error
	// Savepoint sets a savepoint of that name and RollbackTo goes back to it.
	// Both nil: the store has none.
	Savepoint  func(ctx context.Context, tx Tx, name string) error
	RollbackTo func(ctx context.Context, tx Tx, name string) error
	// ConcurrentWriters: several transactions can have enqueued and be open at
	// the same time, and commit in any order.
	ConcurrentWriters bool
	// SetPaused pauses a route, or resumes it, as an operator does. For Sharing.
	SetPaused func(ctx context.Context, route string, paused bool) error
	// Admin is what operators do with the same data. For Admin.
	Admin admin.Store
	// Operate does what an operator asks for, as admin.Operate says, in a
	// transaction of its own. Nil: Admin.Change.
	Operate func(ctx context.Context, op admin.Operation) (changed []int64, err error)
	// Now is the time by the clock that the store goes by.
	Now func(ctx context.Context) (time.Time, error)
}

// Factory makes a fresh, empty store with that many shards. It registers its
// own clean-up with t. It is called from several tests at the same time.
type Factory[Tx any] func(t testing.TB, shards int) Harness[Tx]

// Store is the suite for implementations of relay.Store: enqueueing in
// transactions, shards, leases, fencing, routes, and what survives a change of
// leases. It includes Source, since every Lease is one.
func Store[Tx any](t *testing.T, factory Factory[Tx]) {
	for _, group := range []struct {
		name  string
		tests []storeTest[Tx]
	}{
		{"enqueue", enqueueTests[Tx]()},
		{"late commits", lateTests[Tx]()},
		{"shards", shardTests[Tx]()},
		{"lease", leaseTests[Tx]()},
		{"routes", routeTests[Tx]()},
		{"reload", reloadTests[Tx]()},
		{"deaths", deathTests[Tx]()},
		{"model", modelTests[Tx]()},
	} {
		t.Run(group.name, func(t *testing.T) { runStoreTests(t, factory, group.tests) })
	}
	t.Run("source", func(t *testing.T) { Source(t, factory) })
}

// storeTest is one test on a fresh store.
type storeTest[Tx any] struct {
	name   string
	shards int  // 0 means one
	alone  bool // it does not run beside others
	run    func(r *storeRig[Tx])
}

// properties runs a property as often as the test size says, unless -rapid.checks
// was given. Not to be called by two tests at the same time.
func properties(t *testing.T, short, full int, property func(*rapid.T)) {
	t.Helper()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if checks := flag.Lookup("rapid.checks"); !given {
		before := checks.Value.String()
		defer func() { _ = checks.Value.Set(before) }()
		_ = checks.Value.Set(strconv.Itoa(testsize.Pick(short, full)))
	}
	rapid.Check(t, property)
}

func runStoreTests[Tx any](t *testing.T, factory Factory[Tx], tests []storeTest[Tx]) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if !test.alone {
				t.Parallel() // they wait more than they work
			}
			test.run(newStoreRig(t, factory, max(test.shards, 1)))
		})
	}
}
