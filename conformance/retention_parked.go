package conformance

import (
	"slices"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// states checks which messages of the route stand in the list of operators, in
// order of their numbers, as "name state".
func (r *storeRig[Tx]) states(want ...string) {
	r.tb.Helper()
	window, err := r.h.Admin.Scan(r.ctx, admin.Scan{Route: "route", Shard: 0, Look: 1000, Limit: 1000})
	r.ok("scan", err)
	var got []string
	for _, item := range window.Items {
		got = append(got, item.Type+" "+string(item.State))
	}
	if !slices.Equal(got, want) {
		r.tb.Fatalf("the messages are %v, want %v", got, want)
	}
}

func parkedRetentionTests[Tx any]() []storeTest[Tx] {
	return []storeTest[Tx]{
		{name: "what is parked and waits is kept", run: func(r *storeRig[Tx]) {
			all := messages("k", numbered(4)...)
			all[3].Key, all[3].NotBefore = "", r.now().Add(time.Hour)
			r.enqueue(all...)
			lease := r.acquire()
			got := r.take(lease, 4)
			r.settle(lease, retrying(got[0], time.Second), blocked(got[1])[0], blocked(got[2])[0], as(outbox.StateScheduled, got[3])[0])
			r.clean(atOnce)
			r.states("m1 retrying", "m2 blocked", "m3 blocked", "m4 scheduled")
			whole := func(names ...string) {
				r.tb.Helper()
				got := r.expect(lease, names...)
				for _, d := range got {
					if d.State != outbox.StatePending || string(d.Message.Payload) != "payload of "+d.Message.Type {
						r.tb.Fatalf("%s came as %s (%s) with %q", d.Message.Type, d.State, d.Error, d.Message.Payload)
					}
				}
				r.settle(lease, sent(got...)...)
				r.clean(atOnce)
			}
			whole("m1")
			whole("m2", "m3")
			r.states("m4 scheduled")
			r.left()
		}},
		{name: "failed ones are kept, by themselves", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a", "b")...)
			lease := r.acquire()
			got := r.expect(lease, "a", "b")
			r.settle(lease, failed(got[0]), sent(got[1])[0])
			r.clean(relay.Retention{Sent: time.Nanosecond, Failed: relay.Keep})
			r.clean(relay.Retention{Sent: time.Nanosecond, Failed: time.Hour})
			r.states("a failed")
			r.left()
			if n := len(r.operate(admin.Operation{Action: admin.Retry, Route: "route", Seqs: []int64{got[0].Seq}})); n != 1 {
				r.tb.Fatalf("%d messages are retried", n)
			}
			r.settle(lease, failed(r.expect(lease, "a")[0]))
			r.clean(atOnce)
			r.states()
		}},
		{name: "one that holds its key is kept", run: func(r *storeRig[Tx]) {
			lease, got := r.parkHeadOf(2, failHead, hold(true))
			r.clean(atOnce)
			r.states("m1 failed", "m2 blocked")
			if n := len(r.operate(admin.Operation{Action: admin.Release, Route: "route", Seqs: []int64{got[0].Seq}})); n != 1 {
				r.tb.Fatalf("%d messages are released", n)
			}
			r.clean(atOnce)
			all := r.take(lease, 2)
			r.settle(lease, as(outbox.StateFailed, all[0])[0], sent(all[1])[0])
			r.clean(atOnce)
			r.states()
		}},
		{name: "one that is in the log is kept, since it would count as sent", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a")...)
			other := r.acquire(route("other"))
			lease := r.acquire()
			r.settle(lease, failed(r.expect(lease, "a")[0]))
			r.clean(atOnce)
			r.states("a failed")
			r.settle(other, sent(r.expect(other, "a")...)...)
			r.clean(relay.Retention{Sent: time.Hour, Failed: time.Nanosecond})
			r.states("a failed")
			r.clean(atOnce)
			r.states()
		}},
		{name: "one that was discarded can be retried", run: func(r *storeRig[Tx]) {
			lease, got := r.parkHeadOf(2, func(d relay.Delivery) relay.Outcome { return retrying(d, time.Hour) })
			for _, action := range []admin.Action{admin.Discard, admin.Retry} {
				if n := len(r.operate(admin.Operation{Action: action, Route: "route", Seqs: []int64{got[1].Seq}})); n != 1 {
					r.tb.Fatalf("%s of %d messages", action, n)
				}
				r.clean(relay.Retention{Sent: time.Nanosecond, Failed: relay.Keep})
				if action == admin.Discard {
					r.settle(lease, as(outbox.StateDiscarded, r.expect(lease, "m2")...)...)
				}
			}
			d := r.expect(lease, "m2")[0]
			if d.State != outbox.StatePending || string(d.Message.Payload) != "payload of m2" {
				r.tb.Fatalf("it came as %s (%s) with %q", d.State, d.Error, d.Message.Payload)
			}
		}},
		{name: "expired and discarded ones go with what was sent", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a", "b")...)
			lease := r.acquire()
			got := r.expect(lease, "a", "b")
			r.settle(lease, as(outbox.StateExpired, got[0])[0], retrying(got[1], time.Hour))
			if n := len(r.operate(admin.Operation{Action: admin.Discard, Route: "route", Seqs: []int64{got[1].Seq}})); n != 1 {
				r.tb.Fatalf("%d messages are discarded", n)
			}
			r.settle(lease, as(outbox.StateDiscarded, r.expect(lease, "b")...)...)
			r.clean(relay.Retention{Sent: time.Hour, Failed: time.Nanosecond})
			r.states("a expired", "b discarded")
			r.clean(relay.Retention{Sent: time.Nanosecond, Failed: relay.Keep})
			r.states()
		}},
	}
}
