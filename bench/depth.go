package main

import (
	"context"
	"fmt"
)

// depthSection: whether the rate depends on how much there is to do.
func (b *bench) depthSection(ctx context.Context) error {
	entries, err := b.named("select", "postrider", "watermill_100", "watermill_queue_1000")
	if err != nil {
		return err
	}
	t := &table{title: "Depth of the backlog",
		note:   "Messages per second from the first batch on, since a small backlog is gone in less time than starting takes; the last column compares the largest backlog with the smallest.",
		header: []string{"contender"}}
	rates := make([][]spread, len(entries))
	for i := range rates {
		rates[i] = make([]spread, len(b.depths))
	}
	for k, n := range b.depths {
		t.header = append(t.header, short(float64(n)))
		for round := range b.rounds {
			for _, at := range turn(len(entries), round) {
				d, err := b.fill(ctx, entries[at], n)
				if err != nil {
					return err
				}
				r, err := b.do(ctx, d, task{entry: entries[at], n: n})
				if err != nil {
					return err
				}
				rates[at][k] = append(rates[at][k], r.steady())
				b.log.Info("drained", "depth", n, "round", round+1, "contender", entries[at].ID, "messages", r.count, "per_second", int(r.steady()))
			}
		}
	}
	t.header = append(t.header, "ratio", "remark")
	for i, e := range entries {
		cells := []string{e.Name}
		for _, s := range rates[i] {
			cells = append(cells, s.rate())
		}
		ratio := rates[i][len(b.depths)-1].median() / max(rates[i][0].median(), 1)
		t.add(append(cells, fmt.Sprintf("%.2f", ratio), e.Remark)...)
	}
	return b.write(t)
}
