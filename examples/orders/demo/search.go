package demo

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/examples/orders/page"
	"github.com/postrider/postrider/examples/orders/search"
)

const (
	// shownHits is how many orders the page shows of those that a search finds.
	shownHits = 10
	// searched is how many orders are searched for one by one, the newest, if
	// the index has the right number of them.
	searched = 200
)

// newSearch makes the search index, in a folder of its own.
func newSearch(f *folder, log *slog.Logger) (*reaction, *search.Service, error) {
	s, err := search.Open(search.Config{Path: f.index(), Logger: log})
	if err != nil {
		return nil, nil, err
	}
	return &reaction{
		name: "search", title: "Search", unit: "indexed", one: "indexed", row: "indexed",
		queue: search.DefaultQueue, store: "Bleve",
		handle: s.Handle,
		total: func(context.Context) (int, error) {
			n, err := s.Count()
			return int(n), err
		},
		audit: func(ctx context.Context, orders []order.Order) (audit, error) { return auditSearch(ctx, s, orders) },
		close: s.Close,
	}, s, nil
}

// auditSearch searches for orders by their ids.
func auditSearch(ctx context.Context, s *search.Service, orders []order.Order) (audit, error) {
	n, err := s.Count()
	if err != nil {
		return audit{}, err
	}
	a := audit{total: int(n)}
	if a.total == len(orders) {
		orders = orders[max(0, len(orders)-searched):]
	} else if a.total > len(orders) {
		a.wrong = append(a.wrong, fmt.Sprintf("%d orders are indexed that there are not", a.total-len(orders)))
	}
	for _, o := range orders {
		found, err := s.Search(ctx, o.ID, 1)
		if err != nil {
			return audit{}, err
		}
		if len(found.Orders) == 0 {
			a.missing = append(a.missing, o.ID)
			continue
		}
		want := search.Order{OrderID: o.ID, CustomerID: o.CustomerID, AmountCents: o.AmountCents, CreatedAt: o.CreatedAt}
		if got := found.Orders[0]; got != want {
			a.wrong = append(a.wrong, fmt.Sprintf("%s: ordered %+v, indexed %+v", o.ID, want, got))
		}
	}
	return a, nil
}

// find is page.Config.Search.
func find(ctx context.Context, s *search.Service, query string) (hits []page.Hit, total int, err error) {
	found, err := s.Search(ctx, query, shownHits)
	if err != nil {
		return nil, 0, err
	}
	for _, o := range found.Orders {
		hits = append(hits, page.Hit{ID: o.OrderID, Customer: o.CustomerID, AmountCents: o.AmountCents, CreatedAt: o.CreatedAt})
	}
	return hits, int(found.Total), nil
}
