package main

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/bench/contender"
)

// producersSection: what the message costs whoever writes it.
func (b *bench) producersSection(ctx context.Context) error {
	entries := contender.Producers
	t := &table{title: "Producers",
		note:   fmt.Sprintf("Transactions per second of begin, insert an order, perhaps a message, commit, over %v. Ratios are to the order alone and to the bare table at as many connections in the same round.", b.span),
		header: []string{"transaction", "connections", "transactions/s", "× order alone", "× bare table", "PostgreSQL µs/transaction"}}
	for _, conns := range b.connections {
		got := make([]figures, len(entries))
		bare := make([]spread, len(entries))
		for round := range b.rounds {
			rates := make([]float64, len(entries))
			for _, at := range turn(len(entries), round) {
				r, err := b.produce(ctx, entries[at], conns)
				if err != nil {
					return fmt.Errorf("%s: %w", entries[at].Name, err)
				}
				rates[at] = r.rate()
				got[at].add(r)
				b.log.Info("produced", "round", round+1, "producer", entries[at].ID, "connections", conns, "per_second", int(r.rate()))
			}
			for i := range entries {
				got[i].ratio = append(got[i].ratio, rates[i]/rates[0])
				bare[i] = append(bare[i], rates[i]/rates[1])
			}
		}
		for i, e := range entries {
			t.add(e.Name, fmt.Sprint(conns), got[i].rate.rate(), got[i].ratio.plain(2), bare[i].plain(2), got[i].server.plain(0))
		}
	}
	return b.write(t)
}

// mostProduced bounds the numbers of the messages that producers make.
const mostProduced = 8 << 20

func (b *bench) produce(ctx context.Context, e contender.Entry, conns int) (r ran, err error) {
	d, err := b.database(ctx, e)
	if err != nil {
		return r, err
	}
	if err := e.Contender.Reset(ctx, d.pool); err != nil {
		return r, err
	}
	if err := b.settle(ctx, d); err != nil {
		return r, err
	}
	c, err := b.crew(ctx, job{Contender: e.ID, Messages: mostProduced, Options: contender.Options{URL: d.url, Connections: conns}})
	if err != nil {
		return r, err
	}
	defer c.close()
	if err := c.begin(); err != nil {
		return r, err
	}
	c.await(ctx, mostProduced, b.span)
	if r.outs, r.server, err = c.finish(ctx); err != nil {
		return r, err
	}
	r.count = r.outs[0].Count
	return r, nil
}
