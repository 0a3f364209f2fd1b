package conformance

import (
	"slices"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

func adminRouteTests[Tx any]() []storeTest[Tx] {
	return []storeTest[Tx]{
		{name: "pause and resume", run: func(r *storeRig[Tx]) {
			r.close(r.acquire())
			for _, step := range []struct {
				paused, news bool
			}{{true, true}, {true, false}, {false, true}, {false, false}, {true, true}} {
				do, word := r.admin().Resume, "resume"
				if step.paused {
					do, word = r.admin().Pause, "pause"
				}
				before := len(r.audit())
				news, err := do(r.ctx, "route", "anna", "the broker moves")
				r.ok(word, err)
				if news != step.news {
					r.tb.Errorf("%s is news: %v, want %v", word, news, step.news)
				}
				s := r.routeStatus("route")
				if s.Paused != step.paused || s.Paused && (s.PausedBy != "anna" || s.PausedNote != "the broker moves" || s.PausedAt.IsZero()) || !s.Paused && !s.PausedAt.IsZero() {
					r.tb.Errorf("after %s: %+v", word, s)
				}
				entries := r.audit()
				if added := len(entries) - before; added != 0 != news || news && (entries[0].Action != word || entries[0].Route != "route" || entries[0].By != "anna" || entries[0].Note == "") {
					r.tb.Errorf("after %s, recorded: %+v", word, entries)
				}
			}
			_, err := r.admin().Pause(r.ctx, "rout", "anna", "")
			r.is(err, admin.ErrNoRoute)
			_, err = r.admin().Resume(r.ctx, "rout", "anna", "")
			r.is(err, admin.ErrNoRoute)
		}},
		{name: "a paused route is on the roster as such", run: func(r *storeRig[Tx]) {
			sharer, ok := r.h.Store.(relay.Sharer)
			if !ok {
				r.t.Skip("the store has no roster")
			}
			r.close(r.acquire())
			_, err := r.admin().Pause(r.ctx, "route", "anna", "")
			r.ok("pause", err)
			roster, err := sharer.Look(r.ctx, relay.Member{Owner: "one", Routes: []string{"route"}}, longTTL)
			r.ok("look at the roster", err)
			if !slices.Equal(roster.Paused, []string{"route"}) {
				r.tb.Errorf("paused: %q", roster.Paused)
			}
		}},
		{name: "a route that is served is not removed, unless by force", shards: 2, run: func(r *storeRig[Tx]) {
			r.enqueue(message("a", "a"), message("b", "b"), message("c", "c"), message("d", "d"))
			other := r.acquire(route("other"), shard(0))
			lease := r.acquire(shard(1))
			empty := r.acquire(shard(0), owner("two"))
			r.close(empty)
			_, err := r.admin().RemoveRoute(r.ctx, "route", false, "anna", "")
			r.is(err, admin.ErrServed)
			if len(r.audit()) > 0 {
				r.tb.Error("it was recorded")
			}
			removed, err := r.admin().RemoveRoute(r.ctx, "route", true, "anna", "gone for good")
			r.ok("remove", err)
			if removed.Pending != 4 || removed.Parked != 0 {
				r.tb.Errorf("removed %+v", removed)
			}
			r.fenced(lease)
			if e := r.audit()[0]; e.Action != "remove" || e.Route != "route" || e.Note != "gone for good" {
				r.tb.Errorf("recorded: %+v", e)
			}
			for _, name := range []string{"route", "rout"} {
				_, err = r.admin().RemoveRoute(r.ctx, name, false, "anna", "")
				r.is(err, admin.ErrNoRoute)
			}
			r.routeStatus("other")
			r.close(other)
		}},
		{name: "what was parked on a removed route is gone, and it begins anew", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a", "b", "c")...)
			for _, name := range []string{"route", "other"} {
				lease := r.acquire(route(name))
				got := r.expect(lease, "a", "b", "c")
				r.settle(lease, failed(got[0]))
				r.settle(lease, sent(got[1])...)
				r.close(lease)
			}
			_, err := r.admin().Pause(r.ctx, "route", "anna", "")
			r.ok("pause", err)
			removed, err := r.admin().RemoveRoute(r.ctx, "route", false, "anna", "")
			r.ok("remove", err)
			if removed.Pending != 1 || removed.Parked != 1 || r.audit()[0].Count != 1 {
				r.tb.Errorf("removed %+v, recorded %+v", removed, r.audit()[0])
			}
			r.standings("other a failed", "other b sent", "other c pending")
			lease := r.acquire()
			r.expect(lease, "a", "b", "c")
			if r.routeStatus("route").Paused {
				r.tb.Error("the new one is paused")
			}
			r.lists(admin.Filter{Route: "other", States: []outbox.State{outbox.StateFailed}}, "a")
		}},
		{name: "the audit goes back in pages", run: func(r *storeRig[Tx]) {
			r.close(r.acquire())
			for range 3 {
				for _, do := range []func() (bool, error){
					func() (bool, error) { return r.admin().Pause(r.ctx, "route", "a", "") },
					func() (bool, error) { return r.admin().Resume(r.ctx, "route", "b", "") },
				} {
					_, err := do()
					r.ok("pause or resume", err)
				}
			}
			all := r.audit()
			if len(all) != 6 || !slices.IsSortedFunc(all, func(a, b admin.Entry) int { return int(b.ID - a.ID) }) {
				r.tb.Fatalf("recorded: %+v", all)
			}
			var pages []int64
			for before := int64(0); ; {
				page, err := r.admin().Audit(r.ctx, before, 4)
				r.ok("audit", err)
				if len(page) == 0 {
					break
				}
				for _, e := range page {
					pages = append(pages, e.ID)
				}
				before = page[len(page)-1].ID
			}
			for i, e := range all {
				if i >= len(pages) || pages[i] != e.ID {
					r.tb.Fatalf("pages have %v", pages)
				}
			}
		}},
	}
}
