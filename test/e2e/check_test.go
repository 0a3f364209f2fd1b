package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/test/internal/programs"
)

// committed returns what was committed: every order, by id.
func (s *shop) committed() (orders map[string]order.Order, ids []string) {
	s.t.Helper()
	all, err := order.List(context.WithoutCancel(s.t.Context()), s.data.DB)
	if err != nil {
		s.t.Fatal(err)
	}
	orders = make(map[string]order.Order, len(all))
	for _, o := range all {
		orders[o.ID] = o
		ids = append(ids, o.ID)
	}
	return orders, ids
}

// awaitArrivals waits until the queue has every order that is committed by now.
func (s *shop) awaitArrivals(queue string, within time.Duration) {
	s.t.Helper()
	_, ids := s.committed()
	await(s.t, within, &s.broker.changed, "all orders reach queue "+queue, func() string {
		lacking := s.broker.lacks(queue, ids)
		return unless(len(lacking) == 0, "it lacks %d of %d: %s", len(lacking), len(ids), some(lacking))
	})
}

// checkArrivals checks, once all orders have arrived, what the queue took:
// nothing that was not committed, and the first deliveries of each customer in
// the order of commits. It returns how many were repetitions.
func (s *shop) checkArrivals(queue string) (repeated int) {
	s.t.Helper()
	orders, _ := s.committed()
	turns := s.turns()
	seen := map[string]bool{}
	last := map[string]int{}
	for i, a := range s.broker.taken(queue) {
		if seen[a.id] {
			repeated++
			continue
		}
		seen[a.id] = true
		if _, ok := orders[a.order]; !ok {
			s.t.Errorf("arrival %d: order %s of %s was never committed: %s", i, a.order, a.key, a.body)
			continue
		}
		if turn, err := strconv.Atoi(a.turn); err != nil || turn != last[a.key]+1 {
			s.t.Errorf("arrival %d: %s's order %s came after %d", i, a.key, a.turn, last[a.key])
		} else {
			last[a.key] = turn
		}
	}
	if len(seen) != len(orders) {
		s.t.Errorf("%d messages arrived for %d orders", len(seen), len(orders))
	}
	for customer, turn := range turns {
		if last[customer] != turn {
			s.t.Errorf("%s's last order is %d, the last that arrived in order is %d", customer, turn, last[customer])
		}
	}
	return repeated
}

// turns is how many orders each customer has.
func (s *shop) turns() map[string]int {
	s.t.Helper()
	rows, err := s.data.DB.QueryContext(context.WithoutCancel(s.t.Context()), "SELECT id, turn FROM customers")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	turns := map[string]int{}
	for rows.Next() {
		var customer string
		var turn int
		if err := rows.Scan(&customer, &turn); err != nil {
			s.t.Fatal(err)
		}
		turns[customer] = turn
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return turns
}

// awaitFulfilments waits until every committed order is fulfilled.
func (s *shop) awaitFulfilments() {
	s.t.Helper()
	_, ids := s.committed()
	await(s.t, programs.Patience, &s.broker.changed, "all orders are fulfilled", func() string {
		n := s.broker.unstored(s.table, ids)
		return unless(n == 0, "%d of %d are not", n, len(ids))
	})
}

// checkFulfilments checks that each committed order was fulfilled exactly once,
// as it was placed, and nothing else was.
func (s *shop) checkFulfilments() {
	s.t.Helper()
	orders, _ := s.committed()
	for id, puts := range s.broker.stored(s.table) {
		o, ok := orders[id]
		switch want := (put{o.CustomerID, strconv.FormatInt(o.AmountCents, 10)}); {
		case !ok:
			s.t.Errorf("order %s was fulfilled and never committed", id)
		case len(puts) != 1:
			s.t.Errorf("order %s was fulfilled %d times", id, len(puts))
		case puts[0] != want:
			s.t.Errorf("order %s was fulfilled as %v, want %v", id, puts[0], want)
		}
	}
	found, err := s.fulfilment.All(context.WithoutCancel(s.t.Context()))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range found {
		o, ok := orders[f.OrderID]
		if !ok || f.CustomerID != o.CustomerID || f.AmountCents != o.AmountCents || f.CreatedAt != o.CreatedAt {
			s.t.Errorf("the table has %+v, the order is %+v", f, o)
		}
	}
	if len(found) != len(orders) {
		s.t.Errorf("the table has %d fulfilments of %d orders", len(found), len(orders))
	}
}

// parkedRow is a message that was set aside.
type parkedRow struct {
	state, failure, key string
	attempts, bytes     int
}

// parked is what is set aside, of all routes.
func (s *shop) parked() (parked []parkedRow) {
	s.t.Helper()
	rows, err := s.data.DB.QueryContext(context.WithoutCancel(s.t.Context()),
		"SELECT state, error, key, attempts, coalesce(octet_length(payload), 0) FROM postrider.parked ORDER BY arrival")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var p parkedRow
		if err := rows.Scan(&p.state, &p.failure, &p.key, &p.attempts, &p.bytes); err != nil {
			s.t.Fatal(err)
		}
		parked = append(parked, p)
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return parked
}

// some shows the first of a long list.
func some(list []string) string {
	const most = 5
	if len(list) <= most {
		return fmt.Sprint(list)
	}
	return fmt.Sprint(slices.Concat(list[:most], []string{"…"}))
}
