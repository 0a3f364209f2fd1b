package page

import (
	"fmt"
	"time"
)

// Measures of the chart.
const (
	chartWidth  = 330
	chartHeight = 150
	chartTop    = 22
	chartBottom = 24
)

// chart is orders per minute as bars.
type chart struct {
	Width, Height int
	Base          int // y of the line that bars stand on
	Bars          []bar
	Summary       string
}

type bar struct {
	X, Y, W, H, Middle int
	Orders             int
	Revenue            string
	Clock              string
	Labelled           bool
}

func (a *Analytics) Chart() chart {
	c := chart{Width: chartWidth, Height: chartHeight, Base: chartHeight - chartBottom}
	most, busiest := 0, time.Time{}
	for _, m := range a.Minutes {
		if m.Orders > most {
			most, busiest = m.Orders, m.At
		}
	}
	c.Summary = "No orders yet."
	if most > 0 {
		c.Summary = fmt.Sprintf("Orders in each of the last %d minutes; the most are %s, at %s.",
			len(a.Minutes), number(most), busiest.Local().Format("15:04"))
	}
	for i, m := range a.Minutes {
		slot := chartWidth / len(a.Minutes)
		b := bar{
			X: i*slot + 3, W: slot - 6, Middle: i*slot + slot/2, Orders: m.Orders,
			Revenue: money(m.RevenueCents), Clock: m.At.Local().Format("15:04"),
			Labelled: (len(a.Minutes)-1-i)%3 == 0,
		}
		if most > 0 {
			b.H = (c.Base - chartTop) * m.Orders / most
		}
		if m.Orders > 0 {
			b.H = max(b.H, 2)
		}
		b.Y = c.Base - b.H
		c.Bars = append(c.Bars, b)
	}
	return c
}
