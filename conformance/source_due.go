package conformance

import (
	"cmp"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// dueTests: due times go by the store's clock, which stores may round to
// milliseconds.
func dueTests[Tx any]() []storeTest[Tx] {
	const (
		soon  = 250 * time.Millisecond
		later = 10 * soon // what must not have passed when a busy machine gets there
	)
	// notBefore checks that by the store's clock it is at least that late.
	notBefore := func(r *storeRig[Tx], due time.Time) {
		r.tb.Helper()
		if early := due.Sub(r.now()); early > time.Millisecond {
			r.tb.Fatalf("handed out %v early", early)
		}
	}
	state := func(r *storeRig[Tx], d relay.Delivery, want outbox.State, parked bool) {
		r.tb.Helper()
		if d.State != want || d.Parked != parked {
			r.tb.Fatalf("%s came as state %q, parked %v; want %q, %v", d.Message.Type, d.State, d.Parked, want, parked)
		}
	}
	return []storeTest[Tx]{
		{name: "a retry waits as long as it was told", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a")...)
			lease := r.acquire()
			got := r.expect(lease, "a")
			due := r.now().Add(soon)
			r.settle(lease, retrying(got[0], soon))
			r.expect(lease, "a")
			notBefore(r, due)
		}},
		{name: "also with the next lease", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("k", "a")...)
			lease := r.acquire()
			got := r.expect(lease, "a")
			due := r.now().Add(soon)
			r.settle(lease, retrying(got[0], soon))
			r.close(lease)
			r.expect(r.acquire(owner("two")), "a")
			notBefore(r, due)
		}},
		{name: "retries come as they fall due", run: func(r *storeRig[Tx]) {
			r.enqueue(messages("", "a", "b", "c")...)
			lease := r.acquire()
			got := r.expect(lease, "a", "b", "c")
			r.settle(lease, retrying(got[0], 3*soon), retrying(got[1], soon), retrying(got[2], time.Hour))
			r.expect(lease, "b")
			r.expect(lease, "a")
			r.quiet(lease)
		}},
		{name: "a scheduled message is held back and blocks nobody", run: func(r *storeRig[Tx]) {
			s := message("k", "s")
			s.NotBefore = r.now().Add(later)
			r.enqueue(s, message("k", "a"))
			lease := r.acquire()
			got := r.expect(lease, "s", "a")
			state(r, got[0], outbox.StateScheduled, false)
			state(r, got[1], outbox.StatePending, false)
			r.settle(lease, as(outbox.StateScheduled, got[0])[0], sent(got[1])[0])
			r.close(lease)
			lease = r.acquire(owner("two"))
			r.closedKeys(lease, nil)
			due := r.expect(lease, "s")[0]
			state(r, due, outbox.StatePending, true)
			notBefore(r, s.NotBefore)
			if diff := differ(got[0].Message, due.Message); diff != "" {
				r.tb.Fatalf("a scheduled message came back changed:\n%s", diff)
			}
			r.settle(lease, sent(due)...)
			r.quiet(lease)
		}},
		{name: "scheduled for the past is not scheduled", run: func(r *storeRig[Tx]) {
			m := message("k", "a")
			m.NotBefore = r.now().Add(-time.Minute)
			r.enqueue(m)
			state(r, r.expect(r.acquire(), "a")[0], outbox.StatePending, false)
		}},
		{name: "due behind a closed key it takes its place there", run: func(r *storeRig[Tx]) {
			s := message("k", "s")
			s.NotBefore = r.now().Add(later)
			r.enqueue(s, message("k", "a"), message("k", "b"))
			lease := r.acquire()
			got := r.expect(lease, "s", "a", "b")
			state(r, got[0], outbox.StateScheduled, false)
			r.settle(lease, as(outbox.StateScheduled, got[0])[0], retrying(got[1], 2*later), blocked(got[2])[0])
			r.settle(lease, blocked(r.expect(lease, "s")...)...)
			r.closedKeys(r.acquire(), map[string]int{"k": 3})
			lease = r.acquire()
			r.settle(lease, sent(r.expect(lease, "a")...)...)
			r.expect(lease, "b", "s")
		}},
		{name: "an expired message says so and does not come back", run: func(r *storeRig[Tx]) {
			e, open := message("k", "e"), message("k", "later")
			e.Expires = r.now().Add(-time.Second)
			open.Expires = r.now().Add(time.Hour)
			r.enqueue(e, open)
			lease := r.acquire()
			got := r.expect(lease, "e", "later")
			state(r, got[0], outbox.StateExpired, false)
			state(r, got[1], outbox.StatePending, false)
			r.settle(lease, as(outbox.StateExpired, got[0])[0], sent(got[1])[0])
			r.quiet(lease)
			r.quiet(r.acquire())
		}},
		{name: "a message can expire while it waits", run: func(r *storeRig[Tx]) {
			m := message("k", "a")
			m.Expires = r.now().Add(later)
			r.enqueue(m, message("k", "b"))
			lease := r.acquire()
			got := r.expect(lease, "a", "b")
			r.settle(lease, retrying(got[0], later+soon), blocked(got[1])[0])
			again := r.expect(lease, "a")
			state(r, again[0], outbox.StateExpired, true)
			r.settle(lease, as(outbox.StateExpired, again...)...)
			r.expect(lease, "b")
		}},
		{name: "created at is the store's time", run: func(r *storeRig[Tx]) {
			before := r.now()
			m := message("k", "a")
			m.CreatedAt = before.Add(-time.Hour)
			r.enqueue(m)
			after := r.now()
			at := r.expect(r.acquire(), "a")[0].Message.CreatedAt
			if at.Before(before.Add(-time.Millisecond)) || at.After(after.Add(time.Millisecond)) {
				r.tb.Fatalf("created at %v, want between %v and %v", at, before, after)
			}
		}},
		{name: "times mean the same in every zone", run: func(r *storeRig[Tx]) {
			now := r.now()
			var all []outbox.Message
			for _, zone := range []string{"UTC", "Asia/Jakarta", "America/New_York", "Asia/Kathmandu"} {
				loc, err := time.LoadLocation(zone)
				r.ok("load a time zone", err)
				past, future := message("", "past "+zone), message("", "future "+zone)
				past.NotBefore = now.Add(-time.Minute).In(loc)
				past.Expires = now.Add(time.Minute).In(loc)
				future.NotBefore = now.Add(time.Minute).In(loc)
				all = append(all, past, future)
			}
			r.enqueue(all...)
			got := r.take(r.acquire(), len(all))
			slices.SortFunc(got, func(a, b relay.Delivery) int { return cmp.Compare(a.Seq, b.Seq) })
			for i, d := range got {
				want := outbox.StatePending
				if strings.HasPrefix(d.Message.Type, "future") {
					want = outbox.StateScheduled
				}
				state(r, d, want, false)
				if !d.Message.NotBefore.Equal(all[i].NotBefore.Truncate(time.Microsecond)) {
					r.tb.Fatalf("%s: not before %v, want %v", d.Message.Type, d.Message.NotBefore, all[i].NotBefore)
				}
			}
		}},
	}
}

// envZone marks the process that timeZones started.
const envZone = "POSTRIDER_TEST_ZONE"

// timeZones runs the tests of due times again in processes whose local time
// zone is another one.
func timeZones(t *testing.T) {
	if os.Getenv(envZone) != "" {
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatalf("find the test binary: %v", err)
	}
	// t.Name() is TestX/…/time zones; the tests of due times are its siblings.
	parts := strings.Split(t.Name(), "/")
	parts[len(parts)-1] = "due"
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	for _, zone := range []string{"Asia/Jakarta", "America/New_York", "UTC"}[:testsize.Pick(1, 3)] {
		t.Run(strings.ReplaceAll(zone, "/", " "), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), exe, "-test.run="+strings.Join(parts, "/"), "-test.count=1", "-test.v")
			cmd.Env = append(os.Environ(), "TZ="+zone, envZone+"="+zone)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("in time zone %s: %v\n%s", zone, err, out)
			}
			if !strings.Contains(string(out), "a_retry_waits_as_long_as_it_was_told") {
				t.Fatalf("in time zone %s no test of due times ran:\n%s", zone, out)
			}
		})
	}
}
