package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/inboxdb"
	"github.com/postrider/postrider/examples/orders/mailcatcher"
	"github.com/postrider/postrider/examples/orders/notification"
	"github.com/postrider/postrider/examples/orders/order"
)

// mail is a mail server of the demo's own, which notification sends to.
type mail struct {
	catcher *mailcatcher.Catcher
	box     *mailbox
}

func newMail(f *folder) (m *mail, err error) {
	m = &mail{}
	if m.box, err = openMailbox(f.mails()); err != nil {
		return nil, err
	}
	// The box keeps them.
	if m.catcher, err = mailcatcher.Start(mailcatcher.Options{Keep: 1}); err != nil {
		return nil, errors.Join(err, m.box.close())
	}
	m.catcher.SetHook(m.box.hook)
	return m, nil
}

func (m *mail) close() error {
	m.catcher.Close()
	return m.box.close()
}

// newNotification makes notification with a database of its own.
func newNotification(ctx context.Context, f *folder, m *mail, log *slog.Logger) (*reaction, error) {
	db, err := inboxdb.Open(ctx, config.Database{Kind: config.SQLite, Path: f.sqlite("notification")}, inboxdb.Options{})
	if err != nil {
		return nil, err
	}
	s, err := notification.New(notification.Config{
		DB:     db,
		Server: notification.Server{Addr: m.catcher.Addr, TLS: notification.NoTLS},
		Logger: log,
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &reaction{
		name: "notification", title: "Notification", unit: "mails", one: "mail", row: "mails",
		queue: notification.DefaultQueue, store: "SMTP mailbox",
		handle: s.Handle,
		total: func(context.Context) (int, error) {
			total, _ := m.box.count(nil)
			return total, nil
		},
		audit: func(_ context.Context, orders []order.Order) (audit, error) { return m.box.audit(orders), nil },
		close: db.Close,
	}, nil
}

// audit finds orders without a mail or with several, and mails without an order.
func (b *mailbox) audit(orders []order.Order) audit {
	ids := make([]string, len(orders))
	for i, o := range orders {
		ids[i] = o.ID
	}
	total, of := b.count(ids)
	a := audit{total: total}
	for i, n := range of {
		total -= n
		switch {
		case n == 0:
			a.missing = append(a.missing, ids[i])
		case n > 1:
			a.wrong = append(a.wrong, fmt.Sprintf("%s: %d mails", ids[i], n))
		}
	}
	if total > 0 {
		a.wrong = append(a.wrong, fmt.Sprintf("%d mails about no order", total))
	}
	return a
}
