package conformance

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
)

// InboxHarness is one fresh, empty inbox and an effect to guard with it.
type InboxHarness[Tx any] struct {
	// Store is what is tested.
	Store inbox.Store[Tx]
	// Effect does, inside tx, something that can be counted: twice done counts
	// two.
	Effect func(ctx context.Context, tx Tx, consumer string, id uuid.UUID) error
	// Effects counts what committed.
	Effects func(ctx context.Context, consumer string, id uuid.UUID) (int, error)
}

// Inbox is the suite for implementations of inbox.Store. The factory makes a
// fresh, empty one and registers its own clean-up with t.
func Inbox[Tx any](t *testing.T, factory func(t testing.TB) InboxHarness[Tx]) {
	for _, test := range []struct {
		name string
		run  func(r *inboxRig[Tx])
	}{
		{"once in effect", func(r *inboxRig[Tx]) {
			id := r.id()
			for range 3 {
				r.handle("shop", id)
			}
			r.effects("shop", id, 1)
		}},
		{"records are forgotten in time", func(r *inboxRig[Tx]) {
			forgetter, ok := r.h.Store.(inbox.Forgetter)
			if !ok {
				return
			}
			forget := func(consumer string, older time.Duration, want int64) {
				r.t.Helper()
				if n, err := forgetter.Forget(r.ctx, consumer, older); err != nil || n != want {
					r.t.Fatalf("forgot %d of %s (%v), want %d", n, consumer, err, want)
				}
			}
			id := r.id()
			const more = 1100 // several pages
			for range more {
				r.handle("shop", r.id())
			}
			r.handle("shop", id)
			r.handle("other", id)
			forget("shop", time.Hour, 0)
			r.handle("shop", id)
			r.effects("shop", id, 1)
			time.Sleep(2 * time.Millisecond) // clocks tick in milliseconds
			forget("shop", 0, more+1)
			r.handle("shop", id)
			r.effects("shop", id, 2)
			r.handle("other", id)
			r.effects("other", id, 1)
		}},
		{"messages are told apart", func(r *inboxRig[Tx]) {
			one, other := r.id(), r.id()
			r.handle("shop", one)
			r.effects("shop", other, 0)
			r.handle("shop", other)
			r.effects("shop", one, 1)
			r.effects("shop", other, 1)
		}},
		{"consumers are independent", func(r *inboxRig[Tx]) {
			id := r.id()
			for _, consumer := range []string{"shop", "Shop", "shop ", "🐎'\"", "shop"} {
				r.handle(consumer, id)
			}
			for _, consumer := range []string{"shop", "Shop", "shop ", "🐎'\""} {
				r.effects(consumer, id, 1)
			}
		}},
		{"a failed effect leaves no trace and may come again", func(r *inboxRig[Tx]) {
			id, refusal := r.id(), errors.New("out of stock")
			failing := inbox.Once(r.h.Store, "shop", func(ctx context.Context, tx Tx, m outbox.Message) error {
				return errors.Join(r.h.Effect(ctx, tx, "shop", m.ID), refusal)
			})
			if err := failing(r.ctx, outbox.Message{ID: id}); !errors.Is(err, refusal) {
				r.t.Fatalf("the handler returned %v, want the effect's error", err)
			}
			r.effects("shop", id, 0)
			r.handle("shop", id)
			r.effects("shop", id, 1)
		}},
		{"a failed record leaves no trace either", func(r *inboxRig[Tx]) {
			id, refusal := r.id(), errors.New("changed my mind")
			err := r.h.Store.InTx(r.ctx, func(tx Tx) error {
				if first, err := r.h.Store.Record(r.ctx, tx, "shop", id); err != nil || !first {
					t.Errorf("Record: %v, %v; want first", first, err)
				}
				return refusal
			})
			if !errors.Is(err, refusal) {
				r.t.Fatalf("InTx returned %v, want the function's error", err)
			}
			r.handle("shop", id)
			r.effects("shop", id, 1)
		}},
		{"a panic in the effect rolls back", func(r *inboxRig[Tx]) {
			id := r.id()
			func() {
				defer func() {
					if recover() == nil {
						r.t.Errorf("the panic was swallowed")
					}
				}()
				_ = inbox.Once(r.h.Store, "shop", func(ctx context.Context, tx Tx, m outbox.Message) error {
					if err := r.h.Effect(ctx, tx, "shop", m.ID); err != nil {
						return err
					}
					panic("a bug in the effect")
				})(r.ctx, outbox.Message{ID: id})
			}()
			r.effects("shop", id, 0)
			r.handle("shop", id)
			r.effects("shop", id, 1)
		}},
		{"copies at the same time", copiesAtOnce[Tx]},
		{"a copy that waits for one that fails has the effect", waitsForFailure[Tx]},
		{"a message without an id is refused", func(r *inboxRig[Tx]) {
			err := r.handler("shop")(r.ctx, outbox.Message{Topic: "orders"})
			if err == nil || outbox.ClassOf(err) != outbox.ClassPermanent {
				r.t.Fatalf("handled a message without id: %v, want a permanent error", err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(&inboxRig[Tx]{t: t, ctx: t.Context(), h: factory(t)})
		})
	}
}

// inboxRig drives one fresh inbox.
type inboxRig[Tx any] struct {
	t   *testing.T
	ctx context.Context
	h   InboxHarness[Tx]
}

func (r *inboxRig[Tx]) id() uuid.UUID {
	r.t.Helper()
	id, err := outbox.NewID()
	if err != nil {
		r.t.Fatalf("make an id: %v", err)
	}
	return id
}

func (r *inboxRig[Tx]) handler(consumer string) inbox.Handler {
	return inbox.Once(r.h.Store, consumer, func(ctx context.Context, tx Tx, m outbox.Message) error {
		return r.h.Effect(ctx, tx, consumer, m.ID)
	})
}

func (r *inboxRig[Tx]) handle(consumer string, id uuid.UUID) {
	r.t.Helper()
	if err := r.handler(consumer)(r.ctx, outbox.Message{ID: id, Topic: "orders"}); err != nil {
		r.t.Fatalf("handle: %v", err)
	}
}

func (r *inboxRig[Tx]) effects(consumer string, id uuid.UUID, want int) {
	r.t.Helper()
	got, err := r.h.Effects(r.ctx, consumer, id)
	if err != nil {
		r.t.Fatalf("count the effects: %v", err)
	}
	if got != want {
		r.t.Fatalf("%d effects for consumer %q, want %d", got, consumer, want)
	}
}

// copiesAtOnce: of copies handled at the same time one has the effect; the
// others succeed without, or fail so that the broker brings them again.
func copiesAtOnce[Tx any](r *inboxRig[Tx]) {
	const copies = 8
	id := r.id()
	var done sync.WaitGroup
	succeeded := make(chan bool, copies)
	for range copies {
		done.Go(func() {
			succeeded <- r.handler("shop")(r.ctx, outbox.Message{ID: id}) == nil
		})
	}
	done.Wait()
	close(succeeded)
	any := false
	for ok := range succeeded {
		any = any || ok
	}
	if !any {
		r.t.Errorf("none of %d copies was handled", copies)
	}
	r.effects("shop", id, 1)
	r.handle("shop", id)
	r.effects("shop", id, 1)
}

// waitsForFailure: while a first copy is being handled a second one must not be
// taken for done, since the first may still fail.
func waitsForFailure[Tx any](r *inboxRig[Tx]) {
	id, refusal := r.id(), errors.New("failed after all")
	inside, second := make(chan struct{}), make(chan error, 1)
	go func() {
		<-inside
		second <- r.handler("shop")(r.ctx, outbox.Message{ID: id})
	}()
	err := inbox.Once(r.h.Store, "shop", func(ctx context.Context, tx Tx, m outbox.Message) error {
		close(inside)
		select {
		case err := <-second: // it may fail at once, but not succeed
			second <- err
		case <-time.After(silence):
		}
		return refusal
	})(r.ctx, outbox.Message{ID: id})
	if !errors.Is(err, refusal) {
		r.t.Fatalf("the first copy returned %v", err)
	}
	if err := <-second; err != nil {
		r.handle("shop", id) // the broker brings it again
	}
	r.effects("shop", id, 1)
}
