package services

import (
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/examples/orders/mailcatcher"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/test/internal/programs"
)

// The window in which a mail is sent a second time, and its two edges.
func TestWindowOfNotification(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		stage mailcatcher.Stage
		mails int
	}{
		{"before the server has the mail", mailcatcher.AtData, 1},
		{"after the server has the mail, before the record commits", mailcatcher.AtAnswer, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, testsize.Seed(t))
			orders := r.orders(1, 1)
			var p *process
			var killed atomic.Bool
			r.catcher.SetHook(func(stage mailcatcher.Stage, _ mailcatcher.Mail) *mailcatcher.Refusal {
				if stage == c.stage && killed.CompareAndSwap(false, true) {
					p.Kill()
					if stage == mailcatcher.AtData {
						return &mailcatcher.Refusal{Code: 451, Message: "nobody hears this"}
					}
				}
				return nil
			})
			p = r.start(notificationService)
			r.send(notificationService, orders...)
			p.Code()
			r.start(notificationService)
			r.drained(notificationService)
			if n := r.catcher.Count(); n != c.mails {
				t.Errorf("%d mails, want %d", n, c.mails)
			}
			r.checkMails(orders, c.mails-1)
		})
	}
	// The record has committed, the message is still in the queue.
	t.Run("after the record commits, before the message is deleted", func(t *testing.T) {
		r := newRig(t, testsize.Seed(t))
		orders := r.orders(1, 1)
		remove := r.proxy.Add(awsproxy.Rule{Target: "DeleteMessageBatch", Fault: awsproxy.Hang()})
		p := r.start(notificationService)
		r.send(notificationService, orders...)
		eventually(t, "the message is to be deleted", func() error {
			return programs.Unless(r.proxy.Requests("DeleteMessageBatch") > 0, "no request yet")
		})
		p.Kill()
		remove()
		r.start(notificationService)
		r.drained(notificationService)
		r.checkMails(orders, 0)
		if n := r.catcher.Count(); n != 1 {
			t.Errorf("%d mails", n)
		}
	})
}

// Two processes that handle the same message at once send one mail, whichever
// of them dies.
func TestTwoNotifications(t *testing.T) {
	t.Parallel()
	n := testsize.Pick(50, 500)
	seed := testsize.Seed(t)
	r := newRig(t, seed)
	r.proxy.Add(awsproxy.Rule{Target: "ReceiveMessage", Fault: awsproxy.DeliverTwice()})
	orders := r.orders(seed, n)
	a, b := r.start(notificationService), r.start(notificationService)
	r.send(notificationService, orders...)
	r.drained(notificationService)
	a.Stop()
	b.Stop()
	r.checkMails(orders, 0)
}
