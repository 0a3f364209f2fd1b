package conformance

import (
	"testing"
)

// Source is the suite for what one Lease hands out and records: order, waiting,
// parking, retries, due times, and bytes. Store includes it.
func Source[Tx any](t *testing.T, factory Factory[Tx]) {
	for _, group := range []struct {
		name  string
		tests []storeTest[Tx]
	}{
		{"receive", receiveTests[Tx]()},
		{"parked", parkedTests[Tx]()},
		{"key order", keyOrderTests[Tx]()},
		{"operate", operateTests[Tx]()},
		{"due", dueTests[Tx]()},
		{"bytes", byteTests[Tx]()},
		{"pages", pageTests[Tx]()},
	} {
		t.Run(group.name, func(t *testing.T) { runStoreTests(t, factory, group.tests) })
	}
	t.Run("time zones", func(t *testing.T) { timeZones(t) })
}
