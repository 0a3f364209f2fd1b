// Package model is the storage protocol of PostgreSQL as a model that is small
// enough to walk through every state of it: cursor, lease and parked messages.
// ARCHITECTURE.md says how the protocol works and why; this says that there is
// no order of events, in the instances that the tests explore, in which it
// breaks a promise, and that each of its rules is needed, since without it there
// is one.
//
// # What is in it
//
// PostgreSQL: transactions that get an id before they draw a number, commit,
// roll back (or roll a savepoint back) or stay open; the sequence, which does not
// roll back; snapshots with their xmax and xip, running ids at or above xmax
// being unlisted; statements that each have a snapshot; the lock on the cursor's
// row; who holds the lock of an INSERT on the log. Writers lock the keys that
// they enqueue under, so that the order of numbers of one key is that of commits.
//
// The relay, with the names that the code has: poll for the tail, readPage, the
// gaps in groups with a fence, passes in several statements (stepPass, endPass),
// reads that are cut because the rows are large, askLocks, Settle with the
// position, the unsettled numbers and the outcomes, Acquire and its load, Close;
// the gate per key, with what is parked of each; the parked rows, whether each
// stands in its key's way, which of them are due, and the operator's retry,
// release and discard, of which the relay hears later.
// A relay can be killed, stopped, or overtaken while it still runs, with a
// publish or a settle under way that happens later or never.
//
// The broker: it acknowledges, gets a message while its answer is lost, refuses
// one for now or for good.
//
// # What is checked
//
//   - A committed message that counts as sent was acknowledged by the broker.
//   - Nothing is published that is not committed.
//   - First deliveries of a key come in the order of enqueueing; only messages
//     that failed under release, were released or discarded are passed.
//   - A relay that lost its lease changes nothing.
//   - What is recorded as sent is not published again, and a clean stop leaves
//     nothing acknowledged that is not recorded.
//   - No message is both parked and looked for in the log, and the gate counts in
//     a key's way what the table says.
//   - From every state there is a way to an end at which every committed message
//     is sent and recorded, or parked as failed (or behind one that holds its
//     key), and no number is looked for any more. (That such an end is reached is
//     not shown: it takes a scheduler that is fair.)
//
// # What is left out
//
// One route and one shard; at most 8 numbers, 4 writers, 2 relays, 2 keys. Time
// is an event: a lease runs out, a retry comes due, whenever it likes, and the
// order of Receive's choices (parked messages, next page) is any. Batches: each
// message is published by itself. Where unsettled numbers are kept, in the
// cursor's row or in rows of their own. What is passed through: topics, contents,
// sizes, limits. Scheduled, expired and replayed messages; messages that wait
// because their destination is away are as retrying ones; attempts that are
// recorded before a publish. What a relay remembers from one lease to its next.
// Sharing: any relay takes a lease that is free. A database that goes back, a
// standby, a sequence that was set back. A relay that was killed or has lost its
// lease takes one again only after the server has done with the settle that it
// had sent; the other relay may do so before.
//
// Steps that nobody else can tell from one are one step: computing what to settle
// and updating the cursor's row; a takeover and its load, unless the instance is
// Slow; what Receive hands out and the gate's taking it in.
//
// # How to read a counter-example
//
// A broken promise comes with a shortest way to it: numbered steps, each with
// the lines that changed. Relays are A and B, keys x and y; a number in braces
// is one of the log. The last step breaks the promise.
//
// # How to change it
//
// One file is one package of the product, or part of it: poll.go is source/poll,
// lease.go and parked.go are store/pgstore, session.go is relay, postgres.go the
// server. Change the function
// that has the name of the one in the code; put what it keeps into state; say in
// canonical.go when it cannot matter any more, or the states multiply. Every rule
// gets a Mistake that leaves it out, and a line in the tests with the smallest
// instance that shows it: a rule without one is a rule that may not be needed.
// An instance that has become too large says so; make it smaller before raising
// its limit. Instances for the full size are explored with
// POSTRIDER_TEST_SIZE=full.
package model
