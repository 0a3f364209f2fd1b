package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/examples/orders/fulfilment"
	"github.com/postrider/postrider/examples/orders/order"
)

func reportOf(orders int, a audit) report {
	return report{orders: orders, services: []serviceReport{{
		reaction: &reaction{name: "fulfilment", row: "fulfilments", store: "DynamoDB"}, audit: a,
	}}}
}

func TestCompare(t *testing.T) {
	orders := []order.Order{
		{ID: "right", CustomerID: "c1", AmountCents: 1, CreatedAt: "t"},
		{ID: "missing", CustomerID: "c1", AmountCents: 1, CreatedAt: "t"},
		{ID: "wrong-amount", CustomerID: "c1", AmountCents: 1, CreatedAt: "t"},
		{ID: "wrong-customer", CustomerID: "c1", AmountCents: 1, CreatedAt: "t"},
	}
	fulfilments := []fulfilment.Fulfilment{
		{OrderID: "right", CustomerID: "c1", AmountCents: 1, Status: "received", CreatedAt: "t"},
		{OrderID: "wrong-amount", CustomerID: "c1", AmountCents: 2, Status: "received", CreatedAt: "t"},
		{OrderID: "wrong-customer", CustomerID: "undefined", AmountCents: 1, Status: "received", CreatedAt: "t"},
		{OrderID: "unknown", CustomerID: "c1", AmountCents: 1, Status: "received", CreatedAt: "t"},
	}
	err := reportOf(4, compare(orders, fulfilments)).err()
	if err == nil {
		t.Fatal("all of it was taken for well")
	}
	for _, want := range []string{
		"1 orders are missing in fulfilment:\n  missing", "3 things in fulfilment are not as ordered",
		"wrong-amount", "wrong-customer", "unknown: there is no such order",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%s", want, err)
		}
	}
	if err := reportOf(1, compare(orders[:1], fulfilments[:1])).err(); err != nil {
		t.Errorf("all well: %v", err)
	}
}

func TestPrint(t *testing.T) {
	r := reportOf(3, audit{total: 2, missing: []string{"x"}})
	r.services[0].duplicates = 4
	for i := range 200 {
		r.services[0].delays = append(r.services[0].delays, time.Duration(i+1)*time.Millisecond)
	}
	var out bytes.Buffer
	r.print(&out)
	const want = `  orders                           3
  fulfilments                      2   in DynamoDB
  missing                          1   orders that a service lacks
  wrong                            0   what a service has otherwise than ordered
  duplicates                       4   repeated deliveries, without effect
  commit to fulfilment      p50 100.0 ms, p99 198.0 ms, longest 200.0 ms
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
