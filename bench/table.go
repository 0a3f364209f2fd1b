package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// table is a table of a Markdown document.
type table struct {
	title  string
	note   string // what the columns mean, where that is not plain
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", t.title)
	if t.note != "" {
		fmt.Fprintf(&b, "%s\n\n", t.note)
	}
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.header)
	rule := make([]string, len(t.header))
	for i := range rule {
		rule[i] = "---"
		if i > 0 && t.header[i] != "remark" {
			rule[i] = "---:"
		}
	}
	line(rule)
	for _, row := range t.rows {
		line(row)
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// spread is a series of measurements of one thing.
type spread []float64

// median is the middle one, or the mean of the two in the middle; 0 of none.
func (s spread) median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// rate is the median with the range, in thousands where that is enough.
func (s spread) rate() string {
	if len(s) == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s–%s)", short(s.median()), short(slices.Min(s)), short(slices.Max(s)))
}

// span is the median with the range, with the given number of decimals.
func (s spread) span(decimals int) string {
	if len(s) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.*f (%.*f–%.*f)", decimals, s.median(), decimals, slices.Min(s), decimals, slices.Max(s))
}

// plain is the median with the given number of decimals, or a dash for none.
func (s spread) plain(decimals int) string {
	if len(s) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.*f", decimals, s.median())
}

// short is a number of three digits or so: 5M, 318k, 12.3k, 950.
func short(n float64) string {
	switch {
	case n >= 1_000_000 && n == math.Trunc(n/1e5)*1e5:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", n/1e6), ".0") + "M"
	case n >= 99_950:
		return fmt.Sprintf("%.0fk", n/1000)
	case n >= 1000:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", n/1000), ".0") + "k"
	}
	return fmt.Sprintf("%.0f", n)
}
