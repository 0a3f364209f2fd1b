package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/postrider/postrider/examples/orders/fulfilment"
	"github.com/postrider/postrider/examples/orders/order"
)

// report compares what the order service stored with what fulfilment stored.
type report struct {
	orders      int
	fulfilments int
	missing     []string // orders without a fulfilment
	wrong       []string // fulfilments that differ from their order
	unknown     []string // fulfilments without an order
	duplicates  int
	delays      []time.Duration // sorted
}

func compare(orders []order.Order, fulfilments []fulfilment.Fulfilment) report {
	r := report{orders: len(orders), fulfilments: len(fulfilments)}
	byOrder := make(map[string]fulfilment.Fulfilment, len(fulfilments))
	for _, f := range fulfilments {
		byOrder[f.OrderID] = f
	}
	for _, o := range orders {
		want := fulfilment.Fulfilment{
			OrderID:     o.ID,
			CustomerID:  o.CustomerID,
			AmountCents: o.AmountCents,
			Status:      fulfilment.StatusReceived,
			CreatedAt:   o.CreatedAt,
		}
		got, ok := byOrder[o.ID]
		switch {
		case !ok:
			r.missing = append(r.missing, o.ID)
		case got != want:
			r.wrong = append(r.wrong, fmt.Sprintf("%s: ordered %+v, fulfilled %+v", o.ID, want, got))
		}
		delete(byOrder, o.ID)
	}
	for id := range byOrder {
		r.unknown = append(r.unknown, id)
	}
	return r
}

// err says what is not as it must be; nil if all is well. A duplicate delivery
// is well: it had no effect.
func (r report) err() error {
	var findings []string
	find := func(what string, ids []string) {
		if len(ids) == 0 {
			return
		}
		const shown = 10
		text := fmt.Sprintf("%d %s:\n  %s", len(ids), what, strings.Join(ids[:min(len(ids), shown)], "\n  "))
		if len(ids) > shown {
			text += "\n  …"
		}
		findings = append(findings, text)
	}
	find("orders have no fulfilment", r.missing)
	find("fulfilments differ from their order", r.wrong)
	find("fulfilments belong to no order", r.unknown)
	if findings == nil {
		return nil
	}
	return &Finding{text: strings.Join(findings, "\n")}
}

// Finding is a bad result of a run that itself went well.
type Finding struct{ text string }

func (f *Finding) Error() string { return f.text }

func (r report) print(w io.Writer) {
	row := func(name string, value any, note string) {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %-21s %8v   %s", name, value, note), " "))
	}
	row("orders", r.orders, "")
	row("fulfilments", r.fulfilments, "")
	row("missing", len(r.missing), "orders without a fulfilment")
	row("wrong", len(r.wrong)+len(r.unknown), "fulfilments that differ from their order")
	row("duplicates", r.duplicates, "repeated deliveries, without effect")
	if n := len(r.delays); n > 0 {
		fmt.Fprintf(w, "  %-21s p50 %s, p99 %s, longest %s\n", "commit to fulfilled",
			milliseconds(percentile(r.delays, 50)), milliseconds(percentile(r.delays, 99)), milliseconds(r.delays[n-1]))
	}
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
