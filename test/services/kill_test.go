package services

import (
	"testing"

	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/test/internal/programs"
)

// Each service is killed again and again while messages flow, all of which are
// delivered twice. Every order has its effect once; a mail may be sent again
// only if its service was killed between sending and recording, and with SQLite
// that is at most one mail for each kill.
func TestKilledServices(t *testing.T) {
	t.Parallel()
	kills, n := testsize.Pick(4, 10), testsize.Pick(200, 1000)
	for service, progress := range map[string]func(r *rig, p *process) int{
		notificationService: func(r *rig, _ *process) int { return r.catcher.Count() },
		analyticsService:    func(_ *rig, p *process) int { return int(p.total().Orders) },
		searchService: func(r *rig, p *process) int {
			total := uint64(0)
			for _, customer := range []string{"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"} {
				total += p.find(customer).Total
			}
			return int(total)
		},
	} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			seed := testsize.Seed(t)
			random := testsize.Rand(seed, "kills")
			r := newRig(t, seed)
			r.withoutLimit(service)
			r.proxy.Add(awsproxy.Rule{Target: "ReceiveMessage", Fault: awsproxy.DeliverTwice()})
			orders := r.orders(seed, n)
			sent := 0
			for i := range kills {
				p := r.start(service)
				next := orders[sent:min(n, sent+n/kills)]
				if i == kills-1 {
					next = orders[sent:]
				}
				sent += len(next)
				r.send(service, next...)
				done := progress(r, p)
				// Not later than when all is done, so that there is something to kill.
				enough := min(done+random.IntN(len(next)), sent-1)
				eventually(t, "some progress", func() error {
					now := progress(r, p)
					return programs.Unless(now >= enough, "%d of %d", now, enough)
				})
				p.Kill()
				t.Logf("killed when %d of %d were done", enough, sent)
			}
			p := r.start(service)
			r.drained(service)
			check(t, r, p, service, orders, kills)
			if dead := r.dead(service); dead > 0 {
				t.Errorf("%d dead letters", dead)
			}
			p.Stop()
		})
	}
}

func check(t *testing.T, r *rig, p *process, service string, orders []event.OrderCreated, doubles int) {
	t.Helper()
	switch service {
	case notificationService:
		r.checkMails(orders, doubles)
	case analyticsService:
		p.checkAnalytics(orders)
	case searchService:
		p.checkSearch(orders)
	}
}

// A service that is told to stop finishes what it has: nothing is done twice,
// and the next one goes on.
func TestStoppedServices(t *testing.T) {
	t.Parallel()
	n := testsize.Pick(100, 500)
	for _, service := range allServices {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			seed := testsize.Seed(t)
			r := newRig(t, seed)
			orders := r.orders(seed, n)
			r.send(service, orders...)
			first := r.start(service)
			eventually(t, "some progress", func() error {
				left := r.waiting(r.queue(service))
				return programs.Unless(left < n, "%d are left", left)
			})
			first.Stop()
			second := r.start(service)
			r.drained(service)
			check(t, r, second, service, orders, 0)
			second.Stop()
		})
	}
}
