package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"time"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/analytics"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/inboxdb"
	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/examples/orders/page"
)

const (
	// shownMinutes is how many minutes the chart has.
	shownMinutes = 15
	// shownCustomers is how many customers the page lists.
	shownCustomers = 5
)

// newAnalytics makes analytics with a database of its own.
func newAnalytics(ctx context.Context, f *folder, log *slog.Logger) (*reaction, *analytics.Service, error) {
	db, err := analytics.Open(ctx, config.Database{Kind: config.SQLite, Path: f.sqlite("analytics")}, inboxdb.Options{})
	if err != nil {
		return nil, nil, err
	}
	s, err := analytics.New(analytics.Config{DB: db, Logger: log})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return &reaction{
		name: "analytics", title: "Analytics", unit: "counted", one: "counted", row: "analytics",
		queue: analytics.DefaultQueue, store: "SQLite",
		handle: s.Handle,
		total: func(ctx context.Context) (int, error) {
			sums, err := s.Total(ctx)
			return int(sums.Orders), err
		},
		audit: func(ctx context.Context, orders []order.Order) (audit, error) { return auditAnalytics(ctx, s, orders) },
		close: db.Close,
	}, s, nil
}

// auditAnalytics compares the sums of each minute, which have no orders in them
// any more.
func auditAnalytics(ctx context.Context, s *analytics.Service, orders []order.Order) (audit, error) {
	total, err := s.Total(ctx)
	if err != nil {
		return audit{}, err
	}
	minutes, err := s.Minutes(ctx, analytics.MaxLimit)
	if err != nil {
		return audit{}, err
	}
	a := audit{total: int(total.Orders)}
	want := make(map[time.Time]*analytics.Sums)
	for _, o := range orders {
		at, err := time.Parse(event.TimeLayout, o.CreatedAt)
		if err != nil {
			return audit{}, fmt.Errorf("the time of order %s: %w", o.ID, err)
		}
		addTo(want, at.Truncate(time.Minute), o.AmountCents)
	}
	for _, m := range minutes {
		w, ok := want[m.Minute.UTC()]
		delete(want, m.Minute.UTC())
		clock := m.Minute.UTC().Format(time.RFC3339)
		switch {
		case !ok:
			a.wrong = append(a.wrong, fmt.Sprintf("%s: %d orders counted of none", clock, m.Orders))
		case m.Orders < w.Orders:
			for range w.Orders - m.Orders {
				a.missing = append(a.missing, "an order of "+clock)
			}
		case m.Orders > w.Orders || m.RevenueCents.Cmp(w.RevenueCents) != 0:
			a.wrong = append(a.wrong, fmt.Sprintf("%s: %d orders of %d cents counted, of %d orders of %d cents", clock, m.Orders, m.RevenueCents, w.Orders, w.RevenueCents))
		}
	}
	if len(minutes) == analytics.MaxLimit {
		return a, nil // what is older is not compared
	}
	for at, w := range want {
		for range w.Orders {
			a.missing = append(a.missing, "an order of "+at.Format(time.RFC3339))
		}
	}
	return a, nil
}

func addTo(sums map[time.Time]*analytics.Sums, at time.Time, cents int64) {
	s := sums[at]
	if s == nil {
		s = &analytics.Sums{RevenueCents: new(big.Int)}
		sums[at] = s
	}
	s.Orders++
	s.RevenueCents.Add(s.RevenueCents, big.NewInt(cents))
}

// lookAt is what the page shows of analytics.
func lookAt(ctx context.Context, s *analytics.Service, now time.Time) (*page.Analytics, error) {
	total, err := s.Total(ctx)
	if err != nil {
		return nil, err
	}
	minutes, err := s.Minutes(ctx, shownMinutes)
	if err != nil {
		return nil, err
	}
	customers, err := s.Customers(ctx, shownCustomers)
	if err != nil {
		return nil, err
	}
	shown := &page.Analytics{Orders: int(total.Orders), RevenueCents: total.RevenueCents}
	last := now.UTC().Truncate(time.Minute)
	for i := range shownMinutes {
		m := page.Minute{At: last.Add(time.Duration(i-shownMinutes+1) * time.Minute), RevenueCents: new(big.Int)}
		at := slices.IndexFunc(minutes, func(s analytics.Minute) bool { return s.Minute.Equal(m.At) })
		if at >= 0 {
			m.Orders, m.RevenueCents = int(minutes[at].Orders), minutes[at].RevenueCents
		}
		shown.Minutes = append(shown.Minutes, m)
	}
	for _, c := range customers {
		shown.Customers = append(shown.Customers, page.Customer{Name: c.CustomerID, Orders: int(c.Orders), RevenueCents: c.RevenueCents})
	}
	return shown, nil
}
