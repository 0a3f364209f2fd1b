package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// report compares what the order service stored with what each service stored.
type report struct {
	orders   int
	services []serviceReport
}

type serviceReport struct {
	reaction *reaction
	audit
	duplicates int             // deliveries that were copies
	delays     []time.Duration // from commit to success, sorted
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
	for _, s := range r.services {
		find("orders are missing in "+s.reaction.name, s.missing)
		find("things in "+s.reaction.name+" are not as ordered", s.wrong)
	}
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
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %-25s %8v   %s", name, value, note), " "))
	}
	row("orders", r.orders, "")
	missing, wrong, duplicates := 0, 0, 0
	for _, s := range r.services {
		row(s.reaction.row, s.total, "in "+s.reaction.store)
		missing += len(s.missing)
		wrong += len(s.wrong)
		duplicates += s.duplicates
	}
	row("missing", missing, "orders that a service lacks")
	row("wrong", wrong, "what a service has otherwise than ordered")
	row("duplicates", duplicates, "repeated deliveries, without effect")
	for _, s := range r.services {
		if n := len(s.delays); n > 0 {
			fmt.Fprintf(w, "  %-25s p50 %s, p99 %s, longest %s\n", "commit to "+s.reaction.name,
				milliseconds(percentile(s.delays, 50)), milliseconds(percentile(s.delays, 99)), milliseconds(slices.Max(s.delays)))
		}
	}
}

// percentile is the smallest delay that p per cent of them do not exceed
// (nearest rank).
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
