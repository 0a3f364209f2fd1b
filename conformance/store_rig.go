package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

const (
	// patience bounds every wait for something that must happen. It is not a
	// promise of speed.
	patience = 20 * time.Second
	// silence is how long a test listens for something that must not happen.
	silence = 60 * time.Millisecond
	// longTTL is a lease that does not expire during a test.
	longTTL = 5 * time.Minute
)

// storeRig drives one fresh store. Its methods end the test on an error.
type storeRig[Tx any] struct {
	t      *testing.T
	tb     rapid.TB // t, or the run of a property inside it
	ctx    context.Context
	h      Harness[Tx]
	writer *outbox.Writer[Tx]
}

func newStoreRig[Tx any](t *testing.T, factory Factory[Tx], shards int) *storeRig[Tx] {
	t.Helper()
	h := factory(t, shards)
	return &storeRig[Tx]{t: t, tb: t, ctx: t.Context(), h: h, writer: outbox.NewWriter(h.Inserter)}
}

// in is the rig for one run of a property.
func (r *storeRig[Tx]) in(tb rapid.TB) *storeRig[Tx] {
	inner := *r
	inner.tb = tb
	return &inner
}

// ok ends the test on an error.
func (r *storeRig[Tx]) ok(what string, err error) {
	r.tb.Helper()
	if err != nil {
		r.tb.Fatalf("%s: %v", what, err)
	}
}

// second is the store as another process sees it.
func (r *storeRig[Tx]) second() relay.Store {
	if r.h.Second == nil {
		return r.h.Store
	}
	return r.h.Second(r.t)
}

// now is the time by the store's clock.
func (r *storeRig[Tx]) now() time.Time {
	r.tb.Helper()
	now, err := r.h.Now(r.ctx)
	r.ok("ask for the time", err)
	return now
}

// message makes a message that tests tell by its Type.
func message(key, name string) outbox.Message {
	return outbox.Message{Topic: "orders", Key: key, Type: name, Payload: []byte("payload of " + name)}
}

// messages makes messages of one key, one per name.
func messages(key string, names ...string) []outbox.Message {
	var out []outbox.Message
	for _, name := range names {
		out = append(out, message(key, name))
	}
	return out
}

// numbered is n names.
func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("m%d", i+1)
	}
	return names
}

func (r *storeRig[Tx]) begin() Tx {
	r.tb.Helper()
	tx, err := r.h.Begin(r.ctx)
	r.ok("begin", err)
	return tx
}

func (r *storeRig[Tx]) commit(tx Tx) {
	r.tb.Helper()
	r.ok("commit", r.h.Commit(r.ctx, tx))
}

func (r *storeRig[Tx]) rollback(tx Tx) {
	r.tb.Helper()
	r.ok("roll back", r.h.Rollback(r.ctx, tx))
}

func (r *storeRig[Tx]) enqueueIn(tx Tx, msgs ...outbox.Message) {
	r.tb.Helper()
	r.ok("enqueue", r.writer.Enqueue(r.ctx, tx, msgs...))
}

// enqueue commits the messages in one transaction.
func (r *storeRig[Tx]) enqueue(msgs ...outbox.Message) {
	r.tb.Helper()
	tx := r.begin()
	r.enqueueIn(tx, msgs...)
	r.commit(tx)
}

// claim is a claim of shard 0 with everything filled in.
func claim(edit ...func(*relay.Claim)) relay.Claim {
	c := relay.Claim{Route: "route", Owner: "one", TTL: longTTL, Topics: []string{"**"}, Start: relay.StartBeginning}
	for _, e := range edit {
		e(&c)
	}
	return c
}

func owner(name string) func(*relay.Claim)   { return func(c *relay.Claim) { c.Owner = name } }
func route(name string) func(*relay.Claim)   { return func(c *relay.Claim) { c.Route = name } }
func shard(n int) func(*relay.Claim)         { return func(c *relay.Claim) { c.Shard = n } }
func ttl(d time.Duration) func(*relay.Claim) { return func(c *relay.Claim) { c.TTL = d } }
func topics(patterns ...string) func(*relay.Claim) {
	return func(c *relay.Claim) { c.Topics = patterns }
}
func start(s relay.Start) func(*relay.Claim) { return func(c *relay.Claim) { c.Start = s } }
func hold(on bool) func(*relay.Claim)        { return func(c *relay.Claim) { c.Hold = on } }

// acquire takes a lease, which the test's end closes.
func (r *storeRig[Tx]) acquire(edit ...func(*relay.Claim)) relay.Lease {
	r.tb.Helper()
	return r.acquireFrom(r.h.Store, edit...)
}

func (r *storeRig[Tx]) acquireFrom(store relay.Store, edit ...func(*relay.Claim)) relay.Lease {
	r.tb.Helper()
	lease, err := store.Acquire(r.ctx, claim(edit...))
	r.ok("acquire", err)
	r.t.Cleanup(func() { _ = lease.Close(context.WithoutCancel(r.ctx)) })
	return lease
}

func (r *storeRig[Tx]) close(lease relay.Lease) {
	r.tb.Helper()
	r.ok("close the lease", lease.Close(r.ctx))
}

// receive is one call of Receive that must bring something.
func (r *storeRig[Tx]) receive(lease relay.Lease, max int) []relay.Delivery {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	got, err := lease.Receive(ctx, max)
	r.ok("receive", err)
	if len(got) == 0 {
		r.tb.Fatalf("Receive returned nothing and no error")
	}
	if len(got) > max {
		r.tb.Fatalf("Receive returned %d deliveries, more than the %d asked for", len(got), max)
	}
	return got
}

// take receives until it has exactly n deliveries.
func (r *storeRig[Tx]) take(lease relay.Lease, n int) []relay.Delivery {
	r.tb.Helper()
	var got []relay.Delivery
	for len(got) < n {
		got = append(got, r.receive(lease, n-len(got))...)
	}
	return got
}

// expect takes deliveries with exactly these names, in this order.
func (r *storeRig[Tx]) expect(lease relay.Lease, want ...string) []relay.Delivery {
	r.tb.Helper()
	got := r.take(lease, len(want))
	if !slices.Equal(names(got), want) {
		r.tb.Fatalf("received %v, want %v", names(got), want)
	}
	return got
}

// quiet checks that nothing is handed out.
func (r *storeRig[Tx]) quiet(lease relay.Lease) {
	r.tb.Helper()
	r.quietFor(lease, silence)
}

func (r *storeRig[Tx]) quietFor(lease relay.Lease, wait time.Duration) {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, wait)
	defer cancel()
	got, err := lease.Receive(ctx, 10)
	if len(got) > 0 {
		r.tb.Fatalf("received %v, want nothing", names(got))
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		r.tb.Fatalf("Receive ended with %v, want the context's end", err)
	}
}

func (r *storeRig[Tx]) settle(lease relay.Lease, outcomes ...relay.Outcome) {
	r.tb.Helper()
	r.ok("settle", lease.Settle(r.ctx, outcomes))
}

// operate does what an operator asks for.
func (r *storeRig[Tx]) operate(op admin.Operation) []int64 {
	r.tb.Helper()
	do := r.h.Operate
	if do == nil {
		do = func(ctx context.Context, op admin.Operation) ([]int64, error) {
			return r.h.Admin.Change(ctx, op, &admin.Entry{By: "conformance", Action: string(op.Action), Route: op.Route})
		}
	}
	changed, err := do(r.ctx, op)
	r.ok("operate", err)
	return changed
}

// fenced checks that a settle is refused because the lease is lost.
func (r *storeRig[Tx]) fenced(lease relay.Lease, outcomes ...relay.Outcome) {
	r.tb.Helper()
	if err := lease.Settle(r.ctx, outcomes); !errors.Is(err, relay.ErrFenced) {
		r.tb.Fatalf("Settle on a lost lease: %v, want ErrFenced", err)
	}
}

// held checks that the claim is refused because another owner has the lease.
func (r *storeRig[Tx]) held(store relay.Store, edit ...func(*relay.Claim)) {
	r.tb.Helper()
	lease, err := store.Acquire(r.ctx, claim(edit...))
	if !errors.Is(err, relay.ErrHeld) {
		if lease != nil {
			_ = lease.Close(r.ctx)
		}
		r.tb.Fatalf("Acquire of a held lease: %v, want ErrHeld", err)
	}
}

// names are the Types of the deliveries' messages.
func names(ds []relay.Delivery) []string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = d.Message.Type
	}
	return out
}

func sent(ds ...relay.Delivery) []relay.Outcome {
	var out []relay.Outcome
	for _, d := range ds {
		out = append(out, relay.Outcome{Delivery: d, State: outbox.StateSent, Attempts: d.Attempts + 1, BrokerID: "b-" + d.Message.Type})
	}
	return out
}

func retrying(d relay.Delivery, after time.Duration) relay.Outcome {
	return relay.Outcome{Delivery: d, State: outbox.StateRetrying, Attempts: d.Attempts + 1, RetryAfter: after, Error: "the broker refused it"}
}

func failed(d relay.Delivery) relay.Outcome {
	return relay.Outcome{Delivery: d, State: outbox.StateFailed, Attempts: d.Attempts + 1, Error: "too large for the broker"}
}

// as settles without an attempt: blocked, scheduled, expired, returned.
func as(state outbox.State, ds ...relay.Delivery) []relay.Outcome {
	var out []relay.Outcome
	for _, d := range ds {
		out = append(out, relay.Outcome{Delivery: d, State: state, Attempts: d.Attempts})
	}
	return out
}

// pending parks without an attempt.
func pending(d relay.Delivery, after time.Duration) relay.Outcome {
	return relay.Outcome{Delivery: d, State: outbox.StatePending, Attempts: d.Attempts, RetryAfter: after, Error: "its destination is away"}
}

func blocked(ds ...relay.Delivery) []relay.Outcome  { return as(outbox.StateBlocked, ds...) }
func returned(ds ...relay.Delivery) []relay.Outcome { return as(outbox.StatePending, ds...) }
