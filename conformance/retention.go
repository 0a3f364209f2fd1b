package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// Retention is the suite for stores that are a relay.Cleaner: what no route
// waits for goes in time, and nothing else ever does.
func Retention[Tx any](t *testing.T, factory Factory[Tx]) {
	runStoreTests(t, factory, slices.Concat(retentionTests[Tx](), parkedRetentionTests[Tx]()))
	t.Run("random", func(t *testing.T) { retentionModel(t, factory) })
}

// atOnce deletes what has ended as soon as nobody needs it.
var atOnce = relay.Retention{Sent: time.Nanosecond, Failed: time.Nanosecond}

// clean cleans until there is nothing more to do. A store that was just opened
// looks at everything.
func (r *storeRig[Tx]) clean(keep relay.Retention) {
	r.tb.Helper()
	r.cleanFrom(r.second(), keep)
}

func (r *storeRig[Tx]) cleanFrom(store relay.Store, keep relay.Retention) {
	r.tb.Helper()
	cleaner, ok := store.(relay.Cleaner)
	if !ok {
		r.tb.Fatalf("%T is no relay.Cleaner", store)
	}
	for more := true; more; {
		cleaned, err := cleaner.Clean(r.ctx, keep)
		r.ok("clean", err)
		more = cleaned.More
	}
}

// left checks what is in the log, as a new route finds it, which is removed.
func (r *storeRig[Tx]) left(want ...string) {
	r.tb.Helper()
	probe := "probe " + fmt.Sprint(time.Now().UnixNano())
	lease := r.acquire(route(probe))
	r.expect(lease, want...)
	r.quiet(lease)
	r.close(lease)
	_, err := r.h.Admin.RemoveRoute(r.ctx, probe, true, &admin.Entry{By: "conformance", Action: "remove", Route: probe})
	r.ok("remove the route", err)
}

func retentionTests[Tx any]() []storeTest[Tx] {
	return []storeTest[Tx]{
		{name: "what every route has sent is deleted", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a", "b", "c")...)
			one, two := r.acquire(route("one")), r.acquire(route("two"))
			r.settle(one, sent(r.expect(one, "a", "b", "c")...)...)
			got := r.expect(two, "a", "b", "c")
			r.settle(two, sent(got[0], got[1])...)
			r.clean(atOnce)
			r.left("c")
			r.settle(two, sent(got[2])...)
			r.clean(atOnce)
			r.left()
			r.enqueue(messages("k", "d")...)
			r.settle(one, sent(r.expect(one, "d")...)...)
			r.settle(two, sent(r.expect(two, "d")...)...)
		}},
		{name: "but not before its time", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a")...)
			lease := r.acquire()
			r.settle(lease, sent(r.expect(lease, "a")...)...)
			r.clean(relay.Retention{Sent: time.Hour, Failed: relay.Keep})
			r.clean(relay.Retention{Sent: relay.Keep, Failed: relay.Keep})
			r.left("a")
			time.Sleep(10 * time.Millisecond)
			r.clean(relay.Retention{Sent: 10 * time.Millisecond, Failed: relay.Keep})
			r.left()
		}},
		{name: "nothing without a route", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a")...)
			r.clean(atOnce)
			r.left("a")
		}},
		{name: "nothing that is not sent: in hand, unread, or returned", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", numbered(5)...)...)
			lease := r.acquire()
			got := r.take(lease, 3)
			r.settle(lease, sent(got[0])[0], returned(got[1])[0])
			r.clean(atOnce)
			r.left("m2", "m3", "m4", "m5")
			r.expect(r.acquireFrom(r.second()), "m2", "m3", "m4", "m5")
		}},
		{name: "nothing of a route that stands still", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a", "b")...)
			idle := r.acquire(route("idle"))
			lease := r.acquire()
			r.settle(lease, sent(r.expect(lease, "a", "b")...)...)
			r.close(idle)
			r.clean(atOnce)
			r.expect(r.acquire(route("idle")), "a", "b")
		}},
		{name: "nothing while a relay's route has not begun", run: func(r *storeRig[Tx]) {
			sharer, ok := r.h.Store.(relay.Sharer)
			if !ok {
				return
			}
			_, err := sharer.Look(r.ctx, relay.Member{Owner: "another", Routes: []string{"route", "coming"}}, longTTL)
			r.ok("look", err)
			r.enqueue(messages("k", "a")...)
			lease := r.acquire()
			r.settle(lease, sent(r.expect(lease, "a")...)...)
			r.clean(atOnce)
			r.expect(r.acquire(route("coming")), "a")
		}},
		{name: "nothing that commits late", run: func(r *storeRig[Tx]) {
			if !r.h.ConcurrentWriters {
				return
			}
			late := r.begin()
			r.enqueueIn(late, message("k", "late"))
			r.enqueue(messages("k", "early")...)
			lease := r.acquire()
			r.settle(lease, sent(r.expect(lease, "early")...)...)
			r.clean(atOnce)
			r.commit(late)
			r.clean(atOnce)
			r.left("late")
			got := r.expect(lease, "late")
			r.clean(atOnce)
			r.left("late")
			r.settle(lease, sent(got...)...)
			r.clean(atOnce)
			r.left()
		}},
		{name: "nothing that no route takes, until one does", run: func(r *storeRig[Tx]) {
			stray := message("k", "stray")
			stray.Topic = "ordres"
			r.enqueue(message("k", "a"), stray, message("k", "b"))
			lease := r.acquire(topics("orders"))
			r.settle(lease, sent(r.expect(lease, "a", "b")...)...)
			r.quiet(lease)
			r.settle(lease)
			r.clean(atOnce)
			r.left("stray")
			other := r.acquire(route("other"), topics("ordr*"))
			r.settle(other, sent(r.expect(other, "stray")...)...)
			r.clean(atOnce)
			r.left()
		}},
		{name: "a new route begins with what is left", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", numbered(100)...)...)
			lease := r.acquire()
			r.settle(lease, sent(r.take(lease, 100)...)...)
			r.clean(atOnce)
			now := r.acquire(route("now"), start(relay.StartNow))
			r.quiet(now)
			r.enqueue(messages("k", "a", "b")...)
			r.settle(now, sent(r.expect(now, "a", "b")...)...)
			r.expect(r.acquire(route("beginning")), "a", "b")
		}},
		{name: "two at once", run: func(r *storeRig[Tx]) {
			const n = 3000
			r.enqueue(messages("k", numbered(n)...)...)
			lease := r.acquire()
			r.settle(lease, sent(r.take(lease, n)[:n-1]...)...)
			errs := make(chan error)
			var cleaned [2]int64
			for i, store := range []relay.Store{r.h.Store, r.second()} {
				go func() {
					for more := true; more; {
						did, err := store.(relay.Cleaner).Clean(r.ctx, atOnce)
						cleaned[i] += did.Log
						more = did.More
						if err != nil {
							errs <- err
							return
						}
					}
					errs <- nil
				}()
			}
			r.ok("clean", <-errs)
			r.ok("clean", <-errs)
			r.clean(atOnce)
			if total := cleaned[0] + cleaned[1]; total > n-1 {
				r.tb.Fatalf("two that cleaned say that they deleted %d messages of %d", total, n-1)
			}
			r.left(fmt.Sprintf("m%d", n))
		}},
		{name: "a message that is replayed and deleted meanwhile is sent all the same", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a")...)
			lease := r.acquire()
			got := r.expect(lease, "a")
			r.settle(lease, sent(got...)...)
			if n := len(r.operate(admin.Operation{Action: admin.Replay, Route: "route", Seqs: []int64{got[0].Seq}})); n != 1 {
				r.tb.Fatalf("%d messages are replayed", n)
			}
			r.clean(atOnce)
			again := r.expect(lease, "a")
			if again[0].State != outbox.StatePending || string(again[0].Message.Payload) != string(got[0].Message.Payload) {
				r.tb.Fatalf("it came as %s (%s) with %q", again[0].State, again[0].Error, again[0].Message.Payload)
			}
			r.settle(lease, sent(again...)...)
			r.clean(atOnce)
			r.left()
			if n := len(r.operate(admin.Operation{Action: admin.Replay, Route: "route", Seqs: []int64{got[0].Seq}})); n != 0 {
				r.tb.Fatalf("%d deleted messages are replayed", n)
			}
		}},
	}
}

// retentionModel has random events, and cleans between them: whatever happens,
// each message is delivered until it is sent, and in the end nothing is left.
func retentionModel[Tx any](t *testing.T, factory Factory[Tx]) {
	seed := testsize.Seed(t)
	for round := range testsize.Pick(10, 300) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			random := testsize.Rand(seed, fmt.Sprint(round))
			r := newStoreRig(t, factory, 1)
			lease := r.acquire()
			var hand []relay.Delivery
			unsent := map[string]bool{}
			n := 0
			for range 60 {
				switch random.IntN(6) {
				case 0, 1:
					for range 1 + random.IntN(4) {
						n++
						name := fmt.Sprint("m", n)
						unsent[name] = true
						r.enqueue(message(fmt.Sprint("k", random.IntN(3)), name))
					}
				case 2:
					more, _ := r.receiveWithin(lease, 5*time.Millisecond)
					hand = append(hand, more...)
				case 3:
					var outcomes []relay.Outcome
					for i := range hand {
						switch d := hand[i]; {
						case d.State != outbox.StatePending:
							t.Fatalf("%s came as %s: %s", d.Message.Type, d.State, d.Error)
						case random.IntN(3) == 0:
							outcomes = append(outcomes, retrying(d, time.Duration(random.IntN(3))*time.Millisecond))
						case !unsent[d.Message.Type]:
							t.Fatalf("%s came though it was sent", d.Message.Type)
						default:
							outcomes = append(outcomes, sent(d)[0])
							delete(unsent, d.Message.Type)
						}
					}
					r.settle(lease, blockBehind(outcomes, unsent)...)
					hand = nil
				case 4:
					r.clean(atOnce)
				case 5:
					if random.IntN(4) == 0 {
						lease, hand = r.acquireFrom(r.second()), nil
					}
				}
			}
			lease = r.acquire()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for len(unsent) > 0 {
				got, err := lease.Receive(ctx, 100)
				if err != nil {
					t.Fatalf("%v did not come: %v", unsent, err)
				}
				for _, d := range got {
					if d.State != outbox.StatePending || !unsent[d.Message.Type] {
						t.Fatalf("%s came as %s: %s", d.Message.Type, d.State, d.Error)
					}
					delete(unsent, d.Message.Type)
				}
				r.settle(lease, sent(got...)...)
				r.clean(atOnce)
			}
			r.clean(atOnce)
			r.left()
		})
	}
}

// blockBehind has what follows a message of its key that is not sent wait for
// it, as a relay does.
func blockBehind(outcomes []relay.Outcome, unsent map[string]bool) []relay.Outcome {
	closed := map[string]bool{}
	for i, o := range outcomes {
		key := o.Delivery.Message.Key
		if closed[key] {
			outcomes[i] = blocked(o.Delivery)[0]
			unsent[o.Delivery.Message.Type] = true
		}
		closed[key] = closed[key] || o.State != outbox.StateSent
	}
	return outcomes
}
