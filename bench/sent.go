package main

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/bench/contender"
)

// sentChunk is how many published rows are made at a time.
const sentChunk = 500_000

// sentSection: whether rows that were published long ago slow the others down.
// Contenders that delete their rows have none.
func (b *bench) sentSection(ctx context.Context) error {
	entries, err := b.named("select", "postrider", "watermill_1000")
	if err != nil {
		return err
	}
	t := &table{title: fmt.Sprintf("Drain of %s messages beside %s published rows", short(float64(b.n)), short(float64(b.sent))),
		note:   "For contenders whose published rows stay in the table. The empty table is measured in the same run, before the rows are made.",
		header: []string{"contender", "empty table", "with published rows", "ratio", "remark"}}
	empty, full := make([]spread, len(entries)), make([]spread, len(entries))
	for round := range b.rounds {
		for _, at := range turn(len(entries), round) {
			d, err := b.fill(ctx, entries[at], b.n)
			if err != nil {
				return err
			}
			r, err := b.do(ctx, d, task{entry: entries[at], n: b.n})
			if err != nil {
				return err
			}
			empty[at] = append(empty[at], r.rate())
		}
	}
	readers := make([]string, len(entries))
	for i, e := range entries {
		defer b.forget(ctx, e)
		readers[i] = b.reader()
		if err := b.makeSent(ctx, e, readers[i]); err != nil {
			return fmt.Errorf("%s: make published rows: %w", e.Name, err)
		}
	}
	cut := make([]bool, len(entries))
	for round := range b.rounds {
		for _, at := range turn(len(entries), round) {
			e, made := entries[at], b.sent+round*b.n
			if cut[at] {
				continue // what was left would count for this round
			}
			d := b.databases[e.ID]
			if err := b.more(ctx, d, e, made, b.n); err != nil {
				return err
			}
			r, err := b.do(ctx, d, task{entry: e, first: made, n: b.n, reader: readers[at]})
			if err != nil {
				return err
			}
			b.log.Info("drained beside published rows", "round", round+1, "contender", e.ID, "messages", r.count, "per_second", int(r.rate()))
			full[at], cut[at] = append(full[at], r.rate()), r.cut
		}
	}
	for i, e := range entries {
		t.add(e.Name, empty[i].rate(), full[i].rate(), fmt.Sprintf("%.2f", full[i].median()/max(empty[i].median(), 1)), e.Remark)
	}
	return b.write(t)
}

// makeSent makes rows that the reader has published.
func (b *bench) makeSent(ctx context.Context, e contender.Entry, reader string) error {
	d, err := b.database(ctx, e)
	if err != nil {
		return err
	}
	d.fresh = 0
	if err := e.Contender.Reset(ctx, d.pool); err != nil {
		return err
	}
	for made := 0; made < b.sent; made += sentChunk {
		if err := contender.Source(ctx, d.pool, made, min(sentChunk, b.sent-made)); err != nil {
			return err
		}
		if err := e.Contender.(contender.Keeper).FillSent(ctx, d.pool, reader); err != nil {
			return err
		}
		b.log.Info("published rows made", "contender", e.ID, "rows", min(made+sentChunk, b.sent))
	}
	return nil
}
