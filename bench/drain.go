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
	ratio  spread // to the limit, in the same round
	pgCPU  spread // microseconds of PostgreSQL's processor time for each message
	cpu    spread // microseconds of the contender's
	peak   spread // MiB resident at most
	drains spread // messages published
}

// limitID is the contender that the others are compared with.
const limitID = "select"

func (b *bench) drainSection(ctx context.Context) error {
	entries, err := b.of()
	if err != nil {
		return err
	}
	t := &table{title: fmt.Sprintf("Drain of %s messages, publisher takes no time", short(float64(b.n))),
		header: []string{"contender", "messages/s", "× SELECT", "PostgreSQL µs/message", "client µs/message", "peak MiB", "messages", "remark"}}
	got, err := b.drainRounds(ctx, entries, b.n, 0)
	if err != nil {
		return err
	}
	for i, e := range entries {
		f := got[i]
		t.add(e.Name, f.rate.rate(), f.ratio.plain(2), f.pgCPU.plain(1), f.cpu.plain(1), f.peak.plain(0), short(f.drains.median()), e.Remark)
	}
	return t.write(b.out)
}

// drainRounds lets each contender drain a full backlog once in each round.
func (b *bench) drainRounds(ctx context.Context, entries []contender.Entry, n int, delay time.Duration) ([]figures, error) {
	got := make([]figures, len(entries))
	for round := range b.rounds {
		rates := make([]float64, len(entries))
		limit := 0.0
		for i := range entries {
			at := (i + round) % len(entries) // no one always goes first
			e := entries[at]
			d, err := b.fill(ctx, e, n)
			if err != nil {
				return nil, err
			}
			r, err := b.drain(ctx, d, e, n, delay)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e.Name, err)
			}
			rates[at] = r.rate()
			if e.ID == limitID {
				limit = rates[at]
			}
			got[at].add(r)
			b.log.Info("drained", "round", round+1, "contender", e.ID, "messages", r.Count, "per_second", int(r.rate()), "pg_us", fmt.Sprintf("%.1f", r.perMessage(r.pgCPU)))
		}
		for i, rate := range rates {
			if limit > 0 {
				got[i].ratio = append(got[i].ratio, rate/limit)
			}
		}
	}
	return got, nil
}

func (f *figures) add(r drained) {
	f.rate = append(f.rate, r.rate())
	f.pgCPU = append(f.pgCPU, r.perMessage(r.pgCPU))
	f.cpu = append(f.cpu, r.perMessage(r.CPU))
	f.peak = append(f.peak, float64(r.Peak)/(1<<20))
	f.drains = append(f.drains, float64(r.Count))
}

// drained is one run of one contender.
type drained struct {
	outcome
	pgCPU time.Duration
}

// rate is messages per second.
func (d drained) rate() float64 {
	if d.Elapsed <= 0 {
		return 0
	}
	return float64(d.Count) / d.Elapsed.Seconds()
}

// perMessage is a time's microseconds for each message.
func (d drained) perMessage(t time.Duration) float64 {
	return float64(t.Nanoseconds()) / 1000 / float64(max(d.Count, 1))
}

// drain lets a contender work until n messages were published or time is up.
func (b *bench) drain(ctx context.Context, d *database, e contender.Entry, n int, delay time.Duration) (drained, error) {
	p, err := startProcess(ctx, job{Contender: e.ID, Messages: n,
		Options: contender.Options{URL: d.url, Reader: b.reader(), Delay: delay}})
	if err != nil {
		return drained{}, err
	}
	if _, again := e.Contender.(contender.Rereads); !again {
		d.fresh = 0
	}
	before := treeTime(b.server.PID())
	if err := p.tell("go"); err != nil {
		return drained{}, err
	}
	p.await(ctx, n, b.limit)
	out, err := p.stop(ctx)
	if err != nil {
		return drained{}, err
	}
	if out.Distinct > n || out.Count < n && out.Elapsed < b.limit/2 {
		return drained{}, fmt.Errorf("%d messages of %d came, %d different ones", out.Count, n, out.Distinct)
	}
	return drained{outcome: out, pgCPU: treeTime(b.server.PID()) - before}, nil
}

// await waits until the process has n messages, ends, or time is up.
func (p *process) await(ctx context.Context, n int, limit time.Duration) {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for p.count.Load() < int64(n) {
		select {
		case <-ticker.C:
		case <-p.done:
			return
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
