package conformance

import (
	"fmt"
	"slices"
	"sync"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// enqueueTests: a message is handed out if and only if its transaction committed.
func enqueueTests[Tx any]() []storeTest[Tx] {
	return []storeTest[Tx]{
		{name: "a commit is handed out", run: func(r *storeRig[Tx]) {
			lease := r.acquire()
			r.enqueue(messages("k", "a", "b")...)
			got := r.expect(lease, "a", "b")
			if got[0].Seq >= got[1].Seq {
				r.tb.Fatalf("numbers %d and %d do not rise", got[0].Seq, got[1].Seq)
			}
			for _, d := range got {
				if d.State != outbox.StatePending || d.Parked || d.Attempts != 0 {
					r.tb.Fatalf("a new message came as state %q, parked %v, %d attempts", d.State, d.Parked, d.Attempts)
				}
			}
		}},
		{name: "a rollback is not", run: func(r *storeRig[Tx]) {
			lease := r.acquire()
			tx := r.begin()
			r.enqueueIn(tx, messages("k", "never")...)
			r.rollback(tx)
			r.quiet(lease)
			r.enqueue(messages("k", "after")...)
			r.expect(lease, "after")
			r.quiet(lease)
		}},
		{name: "nothing shows before the commit", run: func(r *storeRig[Tx]) {
			lease := r.acquire()
			tx := r.begin()
			r.enqueueIn(tx, messages("k", "a")...)
			r.quiet(lease)
			r.commit(tx)
			r.expect(lease, "a")
		}},
		{name: "a savepoint rolled back is not", run: func(r *storeRig[Tx]) {
			if r.h.Savepoint == nil {
				return
			}
			lease := r.acquire()
			tx := r.begin()
			r.enqueueIn(tx, messages("k", "before")...)
			r.ok("savepoint", r.h.Savepoint(r.ctx, tx, "sp"))
			r.enqueueIn(tx, messages("k", "never")...)
			r.ok("roll back to savepoint", r.h.RollbackTo(r.ctx, tx, "sp"))
			r.enqueueIn(tx, messages("k", "after")...)
			r.commit(tx)
			r.expect(lease, "before", "after")
			r.quiet(lease)
		}},
		{name: "one transaction keeps its order", run: func(r *storeRig[Tx]) {
			lease := r.acquire()
			want := numbered(1200)
			tx := r.begin()
			r.enqueueIn(tx, messages("k", want[:700]...)...)
			r.enqueueIn(tx, messages("k", want[700:]...)...)
			r.commit(tx)
			r.expect(lease, want...)
		}},
		{name: "a duplicate id is a message of its own or an error, never silence", run: func(r *storeRig[Tx]) {
			lease := r.acquire()
			id, err := outbox.NewID()
			r.ok("make an id", err)
			first, again := message("k", "first"), message("k", "again")
			first.ID, again.ID = id, id
			r.enqueue(first)
			tx := r.begin()
			if err := r.writer.Enqueue(r.ctx, tx, again); err != nil {
				r.rollback(tx)
				r.expect(lease, "first")
				return
			}
			r.commit(tx)
			r.expect(lease, "first", "again")
		}},
		{name: "locked keys make the order of enqueueing the order of commits", run: lockedKeys[Tx]},
	}
}

// lockedKeys lets transactions race for two keys, named in either order.
func lockedKeys[Tx any](r *storeRig[Tx]) {
	if _, ok := r.h.Inserter.(outbox.KeyLocker[Tx]); !ok {
		return
	}
	const writers, rounds = 4, 8
	var (
		want   []string // appended to only while both keys are locked
		failed = make(chan error, writers)
		done   sync.WaitGroup
	)
	for w := range writers {
		done.Go(func() {
			for round := range rounds {
				keys := []string{"left", "right"}
				if w%2 == 1 {
					slices.Reverse(keys)
				}
				name := fmt.Sprintf("w%d.%d", w, round)
				if err := r.lockAndEnqueue(keys, name, func() { want = append(want, name) }); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	done.Wait()
	close(failed)
	for err := range failed {
		r.ok("enqueue under locked keys", err)
	}
	r.expect(r.acquire(), want...)
}

func (r *storeRig[Tx]) lockAndEnqueue(keys []string, name string, locked func()) error {
	tx, err := r.h.Begin(r.ctx)
	if err != nil {
		return err
	}
	if err := r.writer.LockKeys(r.ctx, tx, keys...); err != nil {
		_ = r.h.Rollback(r.ctx, tx)
		return err
	}
	locked()
	if err := r.writer.Enqueue(r.ctx, tx, message("left", name)); err != nil {
		_ = r.h.Rollback(r.ctx, tx)
		return err
	}
	return r.h.Commit(r.ctx, tx)
}

// lateTests: a transaction may commit after messages with higher numbers were
// handed out. Nothing of them applies to a store with one writer.
func lateTests[Tx any]() []storeTest[Tx] {
	tests := []storeTest[Tx]{
		{name: "a late commit is handed out and delays nobody", run: func(r *storeRig[Tx]) {
			lease := r.acquire()
			late := r.begin()
			r.enqueueIn(late, messages("late", "l1", "l2")...)
			r.enqueue(messages("k", "a")...)
			r.settle(lease, sent(r.expect(lease, "a")...)...)
			r.enqueue(messages("k", "b")...)
			r.settle(lease, sent(r.expect(lease, "b")...)...)
			r.quiet(lease)
			r.commit(late)
			r.settle(lease, sent(r.expect(lease, "l1", "l2")...)...)
			r.quiet(lease)
		}},
		{name: "also after a change of leases in between", run: func(r *storeRig[Tx]) {
			lease := r.acquire()
			late := r.begin()
			r.enqueueIn(late, messages("late", "l")...)
			r.enqueue(messages("k", "a", "b")...)
			got := r.expect(lease, "a", "b")
			r.settle(lease, sent(got[1])...)
			r.close(lease)
			lease = r.acquireFrom(r.second(), owner("two"))
			r.settle(lease, sent(r.expect(lease, "a")...)...)
			r.quiet(lease)
			r.commit(late)
			r.expect(lease, "l")
			r.quiet(lease)
		}},
		{name: "a late commit comes before what its key enqueued after it", run: func(r *storeRig[Tx]) {
			lease := r.acquire()
			late := r.begin()
			r.enqueueIn(late, messages("k", "first")...)
			r.enqueue(messages("other", "x")...)
			r.settle(lease, sent(r.expect(lease, "x")...)...)
			r.commit(late)
			r.enqueue(messages("k", "second")...)
			r.expect(lease, "first", "second")
		}},
		{name: "late and rolled back leaves nothing behind", run: func(r *storeRig[Tx]) {
			lease := r.acquire()
			late := r.begin()
			r.enqueueIn(late, messages("late", "never")...)
			r.enqueue(messages("k", "a")...)
			r.settle(lease, sent(r.expect(lease, "a")...)...)
			r.rollback(late)
			r.quiet(lease)
			r.settle(lease)
			r.close(lease)
			lease = r.acquire(owner("two"))
			r.enqueue(messages("k", "b")...)
			r.expect(lease, "b")
			r.quiet(lease)
		}},
		{name: "a message handed out late and not settled comes again", run: func(r *storeRig[Tx]) {
			lease := r.acquire()
			late := r.begin()
			r.enqueueIn(late, messages("late", "l")...)
			r.enqueue(messages("k", "a")...)
			r.settle(lease, sent(r.expect(lease, "a")...)...)
			r.commit(late)
			r.expect(lease, "l")
			r.settle(lease)
			r.close(lease)
			r.expect(r.acquire(owner("two")), "l")
		}},
		{name: "start now takes what commits after the cursor exists", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "old")...)
			late := r.begin()
			r.enqueueIn(late, messages("late", "l")...)
			lease := r.acquire(start(relay.StartNow))
			r.commit(late)
			r.expect(lease, "l")
			r.quiet(lease)
		}},
	}
	for i, test := range tests {
		tests[i].run = func(r *storeRig[Tx]) {
			if r.h.ConcurrentWriters {
				test.run(r)
			}
		}
	}
	return tests
}
