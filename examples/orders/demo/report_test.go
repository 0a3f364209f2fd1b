package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/examples/orders/fulfilment"
	"github.com/postrider/postrider/examples/orders/order"
)

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
	r := compare(orders, fulfilments)
	err := r.err()
	if err == nil {
		t.Fatal("all of it was taken for well")
	}
	for _, want := range []string{"1 orders have no fulfilment:\n  missing", "2 fulfilments differ", "wrong-amount", "wrong-customer", "1 fulfilments belong to no order:\n  unknown"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%s", want, err)
		}
	}
	if err := compare(orders[:1], fulfilments[:1]).err(); err != nil {
		t.Errorf("all well: %v", err)
	}
}

func TestPrint(t *testing.T) {
	r := report{orders: 3, fulfilments: 2, missing: []string{"x"}, duplicates: 4}
	for i := range 200 {
		r.delays = append(r.delays, time.Duration(i+1)*time.Millisecond)
	}
	var out bytes.Buffer
	r.print(&out)
	const want = `  orders                       3
  fulfilments                  2
  missing                      1   orders without a fulfilment
  wrong                        0   fulfilments that differ from their order
  duplicates                   4   repeated deliveries, without effect
  commit to fulfilled   p50 100.0 ms, p99 198.0 ms, longest 200.0 ms
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestLedger(t *testing.T) {
	l := newLedger()
	l.commit("slow")
	if took, known := l.fulfil("early", false); known {
		t.Errorf("an order nobody placed took %s", took)
	}
	l.commit("early") // its fulfilment was faster than this note
	if open, fulfilled, _ := l.progress(); open != 1 || fulfilled != 1 {
		t.Errorf("%d open, %d fulfilled", open, fulfilled)
	}
	_, _, changed := l.progress()
	if _, known := l.fulfil("slow", false); !known {
		t.Error("an order that was placed is not known")
	}
	<-changed
	l.fulfil("slow", true)
	delays, duplicates := l.delays()
	if open, _, _ := l.progress(); open != 0 || len(delays) != 2 || duplicates != 1 {
		t.Errorf("%d open, delays %v, %d duplicates", open, delays, duplicates)
	}
}
