package main

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/bench/contender"
)

// figures are what one contender's runs gave.
type figures struct {
	rate   spread // messages per second
	ratio  spread // to what they are compared with, in the same round
	server spread // microseconds of the server's processor time for each message
	client spread // microseconds of the contender's
	first  spread // milliseconds until the first message
	peak   spread // MiB resident at most
	count  spread // messages published
}

func (f *figures) add(r ran) {
	f.rate = append(f.rate, r.rate())
	f.server = append(f.server, r.perMessage(r.server))
	f.client = append(f.client, r.perMessage(r.client()))
	f.first = append(f.first, r.first().Seconds()*1000)
	f.peak = append(f.peak, r.peak())
	f.count = append(f.count, float64(r.count))
}

// limitID is the contender that the others are compared with.
const limitID = "select"

// drainSection: how fast a backlog goes to a publisher that takes no time.
func (b *bench) drainSection(ctx context.Context) error {
	entries, err := b.of(contender.Entries)
	if err != nil {
		return err
	}
	return b.drainTable(ctx, fmt.Sprintf("Drain of %s messages, the publisher takes no time", short(float64(b.n))), "", entries, 0)
}

// slowDelay is what a publish takes where it takes time.
const slowDelay = 2 * time.Millisecond

// slowSection: the same with a publisher that takes time, as a broker does.
func (b *bench) slowSection(ctx context.Context) error {
	entries, err := b.named("select", "postrider", "watermill_queue_1000", "watermill_queue_5000", "river", "skip_locked_2000", "skip_locked_10000")
	if err != nil {
		return err
	}
	return b.drainTable(ctx, fmt.Sprintf("Drain of %s messages, the publisher takes %v a batch", short(float64(b.n)), slowDelay),
		"The SELECT publishes its pages one after the other. watermill-sql hands out single messages, so the time is taken once for as many as its batch has; river works jobs side by side, and each takes the time.",
		entries, slowDelay)
}

func (b *bench) drainTable(ctx context.Context, title, note string, entries []contender.Entry, delay time.Duration) error {
	t := &table{title: title, note: note,
		header: []string{"contender", "messages/s", "× SELECT", "PostgreSQL µs/message", "client µs/message", "first after ms", "peak MiB", "messages", "remark"}}
	got, err := b.drainRounds(ctx, entries, delay)
	if err != nil {
		return err
	}
	for i, e := range entries {
		f := got[i]
		t.add(e.Name, f.rate.rate(), f.ratio.plain(2), f.server.plain(1), f.client.plain(1), f.first.plain(0), f.peak.plain(0), short(f.count.median()), e.Remark)
	}
	return b.write(t)
}

// drainRounds lets each contender drain a full backlog once in each round.
func (b *bench) drainRounds(ctx context.Context, entries []contender.Entry, delay time.Duration) ([]figures, error) {
	got := make([]figures, len(entries))
	for round := range b.rounds {
		rates := make([]float64, len(entries))
		limit := 0.0
		for _, at := range turn(len(entries), round) {
			e := entries[at]
			d, err := b.fill(ctx, e, b.n)
			if err != nil {
				return nil, err
			}
			r, err := b.do(ctx, d, task{entry: e, n: b.n, delay: delay})
			if err != nil {
				return nil, err
			}
			got[at].add(r)
			if rates[at] = r.rate(); e.ID == limitID {
				limit = rates[at]
			}
			b.log.Info("drained", "round", round+1, "contender", e.ID, "messages", r.count, "per_second", int(r.rate()), "pg_us", fmt.Sprintf("%.1f", r.perMessage(r.server)))
		}
		for i, rate := range rates {
			if limit > 0 {
				got[i].ratio = append(got[i].ratio, rate/limit)
			}
		}
	}
	return got, nil
}

// turn is the order in which n contenders run in a round: each round begins with
// another one.
func turn(n, round int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = (i + round) % n
	}
	return order
}
