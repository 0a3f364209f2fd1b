package conformance

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// Admin is the suite for implementations of admin.Store: what operators see of
// messages and routes, and what they do with them, while a relay has the lease
// and while none has. Harness.Admin is needed.
func Admin[Tx any](t *testing.T, factory Factory[Tx]) {
	for _, group := range []struct {
		name  string
		tests []storeTest[Tx]
	}{
		{"list", adminListTests[Tx]()},
		{"status", adminStatusTests[Tx]()},
		{"act", adminActTests[Tx]()},
		{"routes", adminRouteTests[Tx]()},
	} {
		t.Run(group.name, func(t *testing.T) { runStoreTests(t, factory, group.tests) })
	}
}

func (r *storeRig[Tx]) admin() *admin.Admin { return admin.New(r.h.Admin) }

// list is all pages of a list, each of at most so many messages.
func (r *storeRig[Tx]) list(f admin.Filter, limit int) []admin.Item {
	r.tb.Helper()
	var all []admin.Item
	q := admin.Query{Filter: f, Limit: limit}
	for range 10_000 {
		page, err := r.admin().List(r.ctx, q)
		r.ok("list", err)
		if len(page.Messages) > limit {
			r.tb.Fatalf("a page of %d has %d messages", limit, len(page.Messages))
		}
		all = append(all, page.Messages...)
		if page.Next == nil {
			return all
		}
		q.After = page.Next
	}
	r.tb.Fatal("the list has no end")
	return nil
}

// lists checks which messages fit, by their types, whatever the pages' size.
func (r *storeRig[Tx]) lists(f admin.Filter, want ...string) []admin.Item {
	r.tb.Helper()
	var first []admin.Item
	for _, limit := range []int{100, 1, 3} {
		items := r.list(f, limit)
		got := make([]string, len(items))
		for i, item := range items {
			got[i] = item.Type
		}
		if !slices.Equal(got, want) {
			r.tb.Fatalf("%+v in pages of %d lists %q, want %q", f, limit, got, want)
		}
		if first == nil {
			first = items
		}
	}
	return first
}

// standings checks the state of each message on each route, written
// "route type state".
func (r *storeRig[Tx]) standings(want ...string) {
	r.tb.Helper()
	var got []string
	for _, item := range r.list(admin.Filter{}, 100) {
		got = append(got, fmt.Sprintf("%s %s %s", item.Route, item.Type, item.State))
	}
	if !slices.Equal(got, want) {
		r.tb.Fatalf("they stand %q, want %q", got, want)
	}
}

func (r *storeRig[Tx]) is(err, want error) {
	r.tb.Helper()
	if !errors.Is(err, want) {
		r.tb.Fatalf("error %v, want %v", err, want)
	}
}

// idOf makes a message with a known id.
func idOf(m outbox.Message, version int) outbox.Message {
	m.ID = uuid.Must(uuid.NewV7())
	if version == 4 {
		m.ID = uuid.New()
	}
	return m
}

func adminListTests[Tx any]() []storeTest[Tx] {
	return []storeTest[Tx]{
		{name: "nothing", run: func(r *storeRig[Tx]) {
			r.lists(admin.Filter{})
			r.enqueue(messages("k", "a")...)
			r.lists(admin.Filter{}) // no route knows it
		}},
		{name: "every state", run: func(r *storeRig[Tx]) {
			later := message("", "scheduled")
			later.NotBefore = r.now().Add(time.Hour)
			gone := message("", "expired")
			gone.Expires = r.now().Add(time.Millisecond)
			r.enqueue(message("", "sent"), message("k", "retrying"), message("k", "blocked"), later, message("", "failed"), gone,
				message("", "in flight"), message("", "not read"))
			lease := r.acquire()
			got := r.take(lease, 7)
			r.settle(lease, sent(got[0])...)
			r.settle(lease, retrying(got[1], time.Hour), blocked(got[2])[0], as(outbox.StateScheduled, got[3])[0], failed(got[4]), as(outbox.StateExpired, got[5])[0])
			r.standings("route sent sent", "route retrying retrying", "route blocked blocked", "route scheduled scheduled",
				"route failed failed", "route expired expired", "route in flight pending", "route not read pending")
			for _, s := range []outbox.State{outbox.StateSent, outbox.StateRetrying, outbox.StateBlocked, outbox.StateScheduled, outbox.StateFailed, outbox.StateExpired} {
				r.lists(admin.Filter{States: []outbox.State{s}}, string(s))
			}
			r.lists(admin.Filter{States: []outbox.State{outbox.StatePending}}, "in flight", "not read")
			r.lists(admin.Filter{States: []outbox.State{outbox.StateFailed, outbox.StateSent}}, "sent", "failed")
			r.lists(admin.Filter{States: []outbox.State{outbox.StateFailed, outbox.StateRetrying}}, "retrying", "failed")
			r.lists(admin.Filter{States: []outbox.State{outbox.StateDiscarded}})

			head := r.list(admin.Filter{States: []outbox.State{outbox.StateRetrying}}, 10)[0]
			wait := head.DueAt.Sub(r.now())
			if head.Attempts != 1 || head.Error != "the broker refused it" || wait < 50*time.Minute || wait > 70*time.Minute || head.ChangedAt.IsZero() || head.Key != "k" {
				r.tb.Errorf("the retrying one is %+v", head)
			}
			if due := r.list(admin.Filter{States: []outbox.State{outbox.StateScheduled}}, 10)[0]; !due.DueAt.Equal(later.NotBefore.Truncate(time.Microsecond)) || due.NotBefore.IsZero() {
				r.tb.Errorf("the scheduled one is %+v", due)
			}
			follower := r.list(admin.Filter{States: []outbox.State{outbox.StateBlocked}}, 10)[0]
			if follower.Topic != "orders" || follower.CreatedAt.IsZero() || follower.ID == uuid.Nil {
				r.tb.Errorf("the blocked one is %+v", follower)
			}
		}},
		{name: "filters", shards: 2, run: func(r *storeRig[Tx]) {
			in := func(topic, key, name string) outbox.Message {
				return outbox.Message{Topic: topic, Key: key, Type: name}
			}
			r.enqueue(in("billing.eu.paid", "k", "a"), in("billing.us.paid", "k", "b"), in("billing", "k", "c"))
			middle := r.now()
			for !r.now().After(middle) { // clocks tick in milliseconds
			}
			middle = r.now()
			r.enqueue(in("orders", "k", "d"), in("orders.x", "k", "e"))
			lease := r.acquire(shard(0))
			_ = r.acquire(shard(1))
			k := "k"
			all := r.list(admin.Filter{Key: &k}, 10)
			if len(all) != 5 || all[0].Shard != all[4].Shard {
				r.tb.Fatalf("messages of the key: %+v", all)
			}
			r.lists(admin.Filter{Topic: "billing.*.paid"}, "a", "b")
			r.lists(admin.Filter{Topic: "billing.**"}, "a", "b")
			r.lists(admin.Filter{Topic: "billing"}, "c")
			r.lists(admin.Filter{Topic: "b*"}, "c")
			r.lists(admin.Filter{Topic: "**x"}, "e")
			r.lists(admin.Filter{Topic: "orders.?"})
			r.lists(admin.Filter{Type: "d"}, "d")
			r.lists(admin.Filter{Key: new(string)})
			r.lists(admin.Filter{Until: middle}, "a", "b", "c")
			r.lists(admin.Filter{Since: middle}, "d", "e")
			r.lists(admin.Filter{Since: middle, Until: r.now().Add(time.Hour), Type: "e", Route: "route"}, "e")
			r.lists(admin.Filter{Places: []admin.Place{all[3].Place, all[1].Place, all[3].Place}}, "b", "d")
			r.lists(admin.Filter{IDs: []uuid.UUID{all[2].ID}, Places: []admin.Place{all[4].Place}, Topic: "billing"}, "c")
			_, err := r.admin().List(r.ctx, admin.Query{Filter: admin.Filter{Route: "rout"}})
			r.is(err, admin.ErrNoRoute)
			_, err = r.admin().List(r.ctx, admin.Query{Filter: admin.Filter{IDs: []uuid.UUID{uuid.New()}}})
			r.is(err, admin.ErrNotFound)
			_, err = r.admin().List(r.ctx, admin.Query{Filter: admin.Filter{Places: []admin.Place{{Shard: 2, Seq: 1}}}})
			r.is(err, admin.ErrNotFound)
			for _, f := range []admin.Filter{{Topic: "a\x00"}, {Key: new("\xff")}, {States: []outbox.State{"faild"}}, {Since: middle, Until: middle}} {
				if _, err := r.admin().List(r.ctx, admin.Query{Filter: f}); err == nil {
					r.tb.Errorf("filter %+v is taken", f)
				}
			}
			r.close(lease)
		}},
		{name: "several routes, each its own topics and start", run: func(r *storeRig[Tx]) {
			in := func(topic, name string) outbox.Message { return outbox.Message{Topic: topic, Type: name} }
			r.enqueue(in("a", "1"), in("b", "2"))
			one := r.acquire(route("one"), topics("a", "c*"))
			two := r.acquire(route("two"), start(relay.StartNow))
			r.enqueue(in("c9", "3"), in("c.9", "4"))
			r.settle(one, sent(r.expect(one, "1", "3")...)...)
			r.standings("one 1 sent", "one 3 sent", "two 3 pending", "two 4 pending")
			r.settle(two, failed(r.expect(two, "3", "4")[0]))
			r.standings("one 1 sent", "one 3 sent", "two 3 failed", "two 4 pending")
			r.close(one)
			r.acquire(route("one"), topics("b", "c*")) // what it took before is not recorded
			r.standings("one 2 unknown", "one 3 unknown", "two 3 failed", "two 4 pending")
			r.lists(admin.Filter{States: []outbox.State{admin.Unknown}}, "2", "3")
		}},
		{name: "show", shards: 3, run: func(r *storeRig[Tx]) {
			now := r.now().Truncate(time.Microsecond)
			full := idOf(outbox.Message{
				Topic: "orders", Key: "k\x1b[31m", Type: "full", ContentType: "text/plain", Payload: []byte{0, 1, 255}, NotBefore: now.Add(-time.Hour), Expires: now.Add(time.Hour),
				Headers: map[string]string{"nul": "\x00", "🐎": "ü"},
			}, 7)
			old := idOf(message("", "old"), 4)
			r.enqueue(old)
			r.enqueue(messages("", numbered(20)...)...)
			r.enqueue(full)
			one, two := r.acquire(route("one"), topics("orders")), r.acquire(route("two"), topics("other"))
			for _, want := range []outbox.Message{full, old} {
				details, err := r.admin().Show(r.ctx, want.ID)
				r.ok("show", err)
				if len(details) != 1 || !details[0].InLog || details[0].Message.CreatedAt.IsZero() {
					r.tb.Fatalf("showed %+v", details)
				}
				got := details[0]
				if want.ContentType == "" {
					want.ContentType = outbox.DefaultContentType
				}
				want.CreatedAt = got.Message.CreatedAt
				if diff := differ(want, got.Message); diff != "" {
					r.tb.Errorf("%s", diff)
				}
				again, err := r.admin().ShowPlace(r.ctx, got.Place)
				r.ok("show by place", err)
				if again.Message.ID != want.ID {
					r.tb.Errorf("at %s is %s, not %s", got.Place, again.Message.ID, want.ID)
				}
			}
			_, err := r.admin().Show(r.ctx, uuid.New())
			r.is(err, admin.ErrNotFound)
			_, err = r.admin().Show(r.ctx, uuid.Must(uuid.NewV7()))
			r.is(err, admin.ErrNotFound)
			_, err = r.admin().ShowPlace(r.ctx, admin.Place{Shard: 1, Seq: 1 << 40})
			r.is(err, admin.ErrNotFound)
			r.close(one)
			r.close(two)
		}},
	}
}
