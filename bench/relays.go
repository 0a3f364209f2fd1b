package main

import (
	"context"

	"github.com/postrider/postrider/bench/contender"
)

// relaysSection: what a second relay does to the rate.
func (b *bench) relaysSection(ctx context.Context) error {
	entries, err := b.named("postrider", "watermill_queue_1000", "river", "skip_locked_2000")
	if err != nil {
		return err
	}
	t := &table{title: "Two relays",
		note:   "Messages per second of both together, counted while both had some (where the second never had any: from the first message on). A share is that of the relay with more.",
		header: []string{"contender", "messages", "one relay", "two relays", "ratio", "share", "remark"}}
	got := make([]struct{ one, two, ratio, share spread }, len(entries))
	for round := range b.rounds {
		for _, at := range turn(len(entries), round) {
			e, g, n := entries[at], &got[at], b.backlog(entries[at])
			var rates [2]float64
			for _, k := range turn(2, round) {
				d, err := b.fill(ctx, e, n)
				if err != nil {
					return err
				}
				r, err := b.do(ctx, d, task{entry: e, n: n, processes: k + 1})
				if err != nil {
					return err
				}
				var share float64
				if rates[k], share = r.together(); k == 1 {
					g.share = append(g.share, 100*max(share, 1-share))
				}
				b.log.Info("drained", "relays", k+1, "round", round+1, "contender", e.ID, "messages", r.count, "per_second", int(rates[k]))
			}
			g.one, g.two = append(g.one, rates[0]), append(g.two, rates[1])
			g.ratio = append(g.ratio, rates[1]/max(rates[0], 1))
		}
	}
	for i, e := range entries {
		g := got[i]
		t.add(e.Name, short(float64(b.backlog(e))), g.one.rate(), g.two.rate(), g.ratio.plain(2), g.share.plain(0)+" %", e.Remark)
	}
	return b.write(t)
}

// backlog of one contender. Those that note how far they have come divide the
// table, which takes them a moment; the others take what is not locked.
func (b *bench) backlog(e contender.Entry) int {
	if _, again := e.Contender.(contender.Rereads); again {
		return 5 * b.n
	}
	return b.n
}
