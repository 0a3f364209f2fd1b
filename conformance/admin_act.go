package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// act does an action and returns the types of the messages that it changed.
func (r *storeRig[Tx]) act(request admin.Request) (changed []string, result admin.Result) {
	r.tb.Helper()
	request.By = "anna@laptop"
	request.Each = func(t admin.Touched) {
		if t.Changed {
			changed = append(changed, t.Type)
		}
	}
	result, err := r.admin().Act(r.ctx, request)
	r.ok(string(request.Action), err)
	if int(result.Changed) != len(changed) {
		r.tb.Fatalf("%s told of %q and counted %d", request.Action, changed, result.Changed)
	}
	return changed, result
}

// acts does an action and checks which messages it changed, and that this was
// recorded if there were any.
func (r *storeRig[Tx]) acts(request admin.Request, want ...string) {
	r.tb.Helper()
	before := r.audit()
	changed, result := r.act(request)
	if !slices.Equal(changed, want) {
		r.tb.Fatalf("%s changed %q, want %q", request.Action, changed, want)
	}
	after := r.audit()
	if len(want) == 0 || request.DryRun {
		if len(after) != len(before) || result.AuditID != 0 {
			r.tb.Fatalf("nothing was done, but this was recorded: %+v", after[0])
		}
		return
	}
	if len(after) != len(before)+1 {
		r.tb.Fatalf("%d records, after %d", len(after), len(before))
	}
	e := after[0]
	if e.ID != result.AuditID || e.By != "anna@laptop" || e.Action != string(request.Action) || e.Count != int64(len(want)) || e.Note != request.Note ||
		e.Filter == nil || e.Route != request.Filter.Route || len(e.Filter.IDs) != len(request.Filter.IDs) || e.Filter.Topic != request.Filter.Topic {
		r.tb.Fatalf("recorded: %+v", e)
	}
	if d := r.now().Sub(e.At).Abs(); d > time.Minute {
		r.tb.Fatalf("recorded at %v", e.At)
	}
}

func (r *storeRig[Tx]) audit() []admin.Entry {
	r.tb.Helper()
	entries, err := r.admin().Audit(r.ctx, 0, 100)
	r.ok("audit", err)
	return entries
}

// hears receives until a message comes that is to be published, and settles what
// an operator changed and the lease only has to hear of.
func (r *storeRig[Tx]) hears(lease relay.Lease, want ...string) []relay.Delivery {
	r.tb.Helper()
	var got []relay.Delivery
	for len(got) < len(want) {
		for _, d := range r.receive(lease, 10) {
			if d.Changed() {
				r.settle(lease, as(d.State, d)...)
				continue
			}
			got = append(got, d)
		}
	}
	if !slices.Equal(names(got), want) {
		r.tb.Fatalf("received %v, want %v", names(got), want)
	}
	return got
}

// hearsNothing checks that nothing is to be published.
func (r *storeRig[Tx]) hearsNothing(lease relay.Lease) {
	r.tb.Helper()
	for {
		ctx, cancel := context.WithTimeout(r.ctx, silence)
		got, err := lease.Receive(ctx, 10)
		cancel()
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				r.tb.Fatalf("Receive ended with %v, want the context's end", err)
			}
			return
		}
		for _, d := range got {
			if !d.Changed() {
				r.tb.Fatalf("received %v, want nothing", names(got))
			}
			r.settle(lease, as(d.State, d)...)
		}
	}
}

func adminActTests[Tx any]() []storeTest[Tx] {
	on := func(ids ...uuid.UUID) admin.Filter { return admin.Filter{IDs: ids} }
	return []storeTest[Tx]{
		{name: "a failed message is retried, its attempts anew", run: func(r *storeRig[Tx]) {
			m := idOf(message("k", "a"), 7)
			r.enqueue(m, message("k", "b"), message("k", "c"))
			lease := r.acquire()
			got := r.expect(lease, "a", "b", "c")
			r.settle(lease, failed(got[0]))
			r.settle(lease, sent(got[1:]...)...)
			r.acts(admin.Request{Action: admin.Retry, Filter: on(m.ID), DryRun: true})
			r.standings("route a failed", "route b sent", "route c sent")
			r.acts(admin.Request{Action: admin.Retry, Filter: on(m.ID), Note: "the consumer was mended"}, "a")
			again := r.expect(lease, "a")
			if again[0].Attempts != 0 {
				r.tb.Errorf("it comes with %d attempts", again[0].Attempts)
			}
			r.settle(lease, sent(again...)...)
			r.standings("route a sent", "route b sent", "route c sent")
			r.acts(admin.Request{Action: admin.Retry, Filter: on(m.ID)})
		}},
		{name: "by filter it means the failed ones", run: func(r *storeRig[Tx]) {
			r.enqueue(message("", "a"), message("", "b"), message("", "c"), message("", "d"))
			lease := r.acquire()
			got := r.expect(lease, "a", "b", "c", "d")
			r.settle(lease, failed(got[0]), retrying(got[1], time.Hour), failed(got[2]))
			r.settle(lease, sent(got[3])...)
			r.acts(admin.Request{Action: admin.Retry, Filter: admin.Filter{Topic: "other"}})
			r.acts(admin.Request{Action: admin.Retry, Filter: admin.Filter{Route: "route", Topic: "ord*"}}, "a", "c")
			r.settle(lease, sent(r.expect(lease, "a", "c")...)...)
			r.acts(admin.Request{Action: admin.Retry, Filter: admin.Filter{Route: "route", States: []outbox.State{outbox.StateRetrying}}}, "b")
			r.expect(lease, "b")
		}},
		{name: "without a lease it is remembered", run: func(r *storeRig[Tx]) {
			r.enqueue(message("k", "a"), message("k", "b"))
			lease := r.acquire(hold(true))
			got := r.expect(lease, "a", "b")
			r.settle(lease, failed(got[0]))
			r.settle(lease, blocked(got[1])...)
			r.close(lease)
			r.acts(admin.Request{Action: admin.Retry, Filter: admin.Filter{Key: new("k")}}, "a")
			lease = r.acquire(hold(true))
			r.settle(lease, sent(r.expect(lease, "a")...)...)
			r.settle(lease, sent(r.expect(lease, "b")...)...)
			r.standings("route a sent", "route b sent")
		}},
		{name: "a held key is released", run: func(r *storeRig[Tx]) {
			m := idOf(message("k", "a"), 7)
			r.enqueue(m, message("k", "b"))
			lease := r.acquire(hold(true))
			got := r.expect(lease, "a", "b")
			r.settle(lease, failed(got[0]), blocked(got[1])[0])
			r.quiet(lease)
			failedOne := func() admin.Item { return r.list(admin.Filter{States: []outbox.State{outbox.StateFailed}}, 1)[0] }
			if !failedOne().Holds {
				r.tb.Error("it is not shown that it holds its key")
			}
			r.acts(admin.Request{Action: admin.Release, Filter: on(m.ID)}, "a")
			r.settle(lease, sent(r.hears(lease, "b")...)...)
			r.standings("route a failed", "route b sent")
			if failedOne().Holds {
				r.tb.Error("it is shown that it holds its key, which went on")
			}
			r.acts(admin.Request{Action: admin.Release, Filter: on(m.ID)})
		}},
		{name: "what is discarded lets its followers go", run: func(r *storeRig[Tx]) {
			m := idOf(message("k", "a"), 7)
			later := message("", "later")
			later.NotBefore = r.now().Add(time.Hour)
			r.enqueue(m, message("k", "b"), message("k", "c"), later)
			lease := r.acquire()
			got := r.expect(lease, "a", "b", "c", "later")
			r.settle(lease, retrying(got[0], time.Hour), blocked(got[1])[0], blocked(got[2])[0], as(outbox.StateScheduled, got[3])[0])
			r.quiet(lease)
			r.acts(admin.Request{Action: admin.Discard, Filter: admin.Filter{Places: []admin.Place{{Shard: 0, Seq: got[1].Seq}}}}, "b")
			r.hearsNothing(lease)
			r.acts(admin.Request{Action: admin.Discard, Filter: on(m.ID)}, "a")
			r.settle(lease, sent(r.hears(lease, "c")...)...)
			r.acts(admin.Request{Action: admin.Discard, Filter: admin.Filter{Route: "route"}}, "later")
			r.standings("route a discarded", "route b discarded", "route c sent", "route later discarded")
			r.hearsNothing(lease)
		}},
		{name: "what was sent is sent again", run: func(r *storeRig[Tx]) {
			m := idOf(message("k", "a"), 7)
			r.enqueue(m, message("k", "b"), message("", "c"))
			lease := r.acquire()
			got := r.expect(lease, "a", "b", "c")
			r.settle(lease, sent(got[0], got[2])...)
			r.acts(admin.Request{Action: admin.Replay, Filter: admin.Filter{Route: "route"}, DryRun: true})
			r.acts(admin.Request{Action: admin.Replay, Filter: admin.Filter{Route: "route"}}, "a", "c")
			again := r.take(lease, 2)
			types := names(again)
			slices.Sort(types)
			if !slices.Equal(types, []string{"a", "c"}) {
				r.tb.Fatalf("sent again: %q", types)
			}
			i := slices.IndexFunc(again, func(d relay.Delivery) bool { return d.Message.Type == "a" })
			if again[i].Message.Replay == 0 {
				r.tb.Error("nothing tells the replay from the first time")
			}
			again[i].Message.Replay = 0
			if diff := differ(got[0].Message, again[i].Message); diff != "" {
				r.tb.Errorf("%s", diff)
			}
			r.settle(lease, sent(again...)...)
			r.settle(lease, sent(got[1])...)
			r.standings("route a sent", "route b sent", "route c sent")
			r.acts(admin.Request{Action: admin.Replay, Filter: on(m.ID)}, "a")
			r.settle(lease, sent(r.expect(lease, "a")...)...)
			r.quiet(lease)
		}},
		{name: "a message in another state is left alone, and it is said why", run: func(r *storeRig[Tx]) {
			m, n := idOf(message("", "a"), 7), idOf(message("", "b"), 7)
			r.enqueue(m, n)
			lease := r.acquire()
			got := r.expect(lease, "a", "b")
			r.settle(lease, sent(got[0])...)
			var left []string
			result, err := r.admin().Act(r.ctx, admin.Request{Action: admin.Retry, Filter: on(m.ID, n.ID), Each: func(t admin.Touched) { left = append(left, t.Left) }})
			r.ok("retry", err)
			if result.Matched != 0 || len(left) != 2 || !strings.Contains(left[0], "it is sent: retry takes what is failed") || !strings.Contains(left[1], "it is pending") {
				r.tb.Errorf("%+v, %q", result, left)
			}
			_, err = r.admin().Act(r.ctx, admin.Request{Action: admin.Retry, Filter: on(uuid.New())})
			r.is(err, admin.ErrNotFound)
			_, err = r.admin().Act(r.ctx, admin.Request{Action: admin.Retry, Filter: admin.Filter{States: []outbox.State{outbox.StateFailed}}})
			r.is(err, admin.ErrTooWide)
			_, err = r.admin().Act(r.ctx, admin.Request{Action: admin.Discard, Filter: admin.Filter{Route: "route", States: []outbox.State{outbox.StateSent}}})
			r.is(err, admin.ErrWrongState)
			if entries := r.audit(); len(entries) > 0 {
				r.tb.Errorf("recorded: %+v", entries)
			}
		}},
		{name: "it is bounded to what a dry run found", run: func(r *storeRig[Tx]) {
			r.enqueue(message("", "a"), message("", "b"), message("", "c"))
			one, two := r.acquire(route("one")), r.acquire(route("two"))
			first, second := r.expect(one, "a", "b", "c"), r.expect(two, "a", "b", "c")
			r.settle(one, failed(first[0]), failed(first[2]))
			r.settle(two, failed(second[1]))
			request := admin.Request{Action: admin.Retry, Filter: admin.Filter{Topic: "orders"}, DryRun: true}
			_, dry := r.act(request)
			r.settle(one, failed(first[1]))
			r.settle(two, failed(second[0]), failed(second[2]))
			request.DryRun, request.Among = false, dry.Found
			r.acts(request, "a", "c", "b")
			r.standings("one a retrying", "one b failed", "one c retrying", "two a failed", "two b retrying", "two c failed")
			r.acts(request)
		}},
		{name: "many, in several transactions, are one record", run: func(r *storeRig[Tx]) {
			const n = 2*admin.MaxOperation + 10
			r.enqueue(messages("", numbered(n)...)...)
			lease := r.acquire()
			for left := n; left > 0; {
				got := r.receive(lease, min(left, 500))
				left -= len(got)
				var outcomes []relay.Outcome
				for _, d := range got {
					outcomes = append(outcomes, failed(d))
				}
				r.settle(lease, outcomes...)
			}
			r.close(lease)
			changed, result := r.act(admin.Request{Action: admin.Discard, Filter: admin.Filter{Route: "route"}})
			entries := r.audit()
			if len(changed) != n || len(entries) != 1 || entries[0].Count != n || entries[0].ID != result.AuditID {
				r.tb.Errorf("%d changed; recorded: %+v", len(changed), entries)
			}
		}},
	}
}
