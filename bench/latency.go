package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/bench/contender"
)

// latencySection: how long a message takes from its commit to its publish, at a
// steady rate.
func (b *bench) latencySection(ctx context.Context) error {
	entries, err := b.named("postrider", "watermill_100", "watermill_poll", "river")
	if err != nil {
		return err
	}
	t := &table{title: fmt.Sprintf("Commit to publish at %d messages/s", b.rate),
		note:   fmt.Sprintf("Milliseconds over %v, one message a transaction, at fixed times whether earlier ones are done or not, from %d connections.", b.span, writers),
		header: []string{"contender", "p50 ms", "p99 ms", "largest ms", "messages/s", "PostgreSQL µs/message", "client µs/message", "remark"}}
	got := make([]struct{ p50, p99, most, rate, server, client spread }, len(entries))
	for round := range b.rounds {
		for _, at := range turn(len(entries), round) {
			f := &got[at]
			r, err := b.steadily(ctx, entries[at], b.rate, b.span)
			if err != nil {
				return fmt.Errorf("%s: %w", entries[at].Name, err)
			}
			f.p50, f.p99, f.most = append(f.p50, r.quantile(0.5)), append(f.p99, r.quantile(0.99)), append(f.most, r.quantile(1))
			f.rate, f.server, f.client = append(f.rate, r.rate), append(f.server, r.perMessage(r.server)), append(f.client, r.perMessage(r.client()))
			b.log.Info("latency", "round", round+1, "contender", entries[at].ID, "p50_ms", r.quantile(0.5), "p99_ms", r.quantile(0.99), "per_second", int(r.rate))
		}
	}
	for i, e := range entries {
		f := got[i]
		t.add(e.Name, f.p50.span(1), f.p99.span(1), f.most.span(0), f.rate.plain(0), f.server.plain(0), f.client.plain(0), e.Remark)
	}
	return b.write(t)
}

// idleRate is how many messages per second come to an idle relay.
const idleRate = 2

// idleSection: what a relay takes that has nothing to do, and how soon it wakes.
func (b *bench) idleSection(ctx context.Context) error {
	entries, err := b.named("postrider", "watermill_poll", "river")
	if err != nil {
		return err
	}
	t := &table{title: fmt.Sprintf("Idle: %d messages/s", idleRate),
		note:   fmt.Sprintf("Over %v. Processor time is a share of one core, the server's with the inserts in it.", b.idle),
		header: []string{"contender", "p50 ms", "largest ms", "client % of a core", "PostgreSQL % of a core", "resident MiB", "remark"}}
	got := make([]struct{ p50, most, client, server, resident spread }, len(entries))
	for round := range b.rounds {
		for _, at := range turn(len(entries), round) {
			f := &got[at]
			r, err := b.steadily(ctx, entries[at], idleRate, b.idle)
			if err != nil {
				return fmt.Errorf("%s: %w", entries[at].Name, err)
			}
			share := func(t time.Duration) float64 { return 100 * t.Seconds() / r.took.Seconds() }
			f.p50, f.most = append(f.p50, r.quantile(0.5)), append(f.most, r.quantile(1))
			f.client, f.server = append(f.client, share(r.client())), append(f.server, share(r.server))
			f.resident = append(f.resident, float64(r.outs[0].Resident)/(1<<20))
			b.log.Info("idle", "round", round+1, "contender", entries[at].ID, "p50_ms", r.quantile(0.5), "client_percent", share(r.client()))
		}
	}
	for i, e := range entries {
		f := got[i]
		t.add(e.Name, f.p50.span(1), f.most.span(0), f.client.plain(1), f.server.plain(1), f.resident.plain(0), e.Remark)
	}
	return b.write(t)
}

// steady is a run at a fixed rate.
type steady struct {
	ran
	latencies []float64 // milliseconds, sorted
	rate      float64   // messages per second that were committed
	took      time.Duration
}

// quantile of the latencies; 1 is the largest.
func (s steady) quantile(q float64) float64 {
	if len(s.latencies) == 0 {
		return 0
	}
	return s.latencies[min(int(q*float64(len(s.latencies))), len(s.latencies)-1)]
}

// warmUp is how long a contender and its writers run before they are measured.
const warmUp = time.Second

// steadily lets a contender publish what is committed meanwhile, at a rate.
func (b *bench) steadily(ctx context.Context, e contender.Entry, rate int, span time.Duration) (s steady, err error) {
	d, err := b.database(ctx, e)
	if err != nil {
		return s, err
	}
	d.fresh = 0
	if err := e.Contender.Reset(ctx, d.pool); err != nil {
		return s, err
	}
	if err := b.settle(ctx, d); err != nil {
		return s, err
	}
	early := max(1, int(warmUp.Seconds()*float64(rate)))
	n := early + max(1, int(span.Seconds()*float64(rate)))
	c, err := b.crew(ctx, job{Contender: e.ID, Messages: n,
		Options: contender.Options{URL: d.url, Reader: b.reader(), Times: true, Verify: b.verify}})
	if err != nil {
		return s, err
	}
	defer c.close()
	if err := c.begin(); err != nil {
		return s, err
	}
	w, err := newWriter(ctx, d, e, rate)
	if err != nil {
		return s, err
	}
	defer w.pool.Close()
	if _, err := w.write(ctx, 0, early, rate); err != nil {
		return s, err
	}
	if err := c.mark("mark"); err != nil {
		return s, err
	}
	began := time.Now()
	commits, err := w.write(ctx, early, n-early, rate)
	if err != nil {
		return s, err
	}
	s.took = time.Since(began)
	c.await(ctx, n, s.took+patience)
	if s.outs, s.server, err = c.finish(ctx); err != nil {
		return s, err
	}
	return s, s.collect(commits, early)
}

// collect works out the latencies from the times of the commits, the first of
// which is that of message early.
func (s *steady) collect(commits []int64, early int) error {
	if s.count = s.outs[0].Count - early; s.count != len(commits) {
		return fmt.Errorf("%d messages of %d came within %v", s.count, len(commits), patience)
	}
	s.rate = perSecond(len(commits), s.took)
	for i, committed := range commits {
		// A relay may be quicker than the writer hears of its own commit.
		s.latencies = append(s.latencies, max(0, time.Duration(s.outs[0].Times[early+i]-committed).Seconds()*1000))
	}
	slices.Sort(s.latencies)
	return nil
}

// patience is how long to wait for the last message.
const patience = 30 * time.Second

// writers is how many connections commit messages.
const writers = 32

// writer commits messages through a contender's own way to enqueue.
type writer struct {
	pool   *pgxpool.Pool
	insert func(context.Context, pgx.Tx, contender.Message) error
}

func newWriter(ctx context.Context, d *database, e contender.Entry, rate int) (*writer, error) {
	config := d.pool.Config()
	config.MaxConns = int32(min(writers, rate))
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	insert, err := e.Contender.(contender.Inserter).Insert(ctx, pool)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &writer{pool, insert}, nil
}

// write commits n messages at fixed times, numbered from first, and returns when
// each was committed, in nanoseconds since 1970.
func (w *writer) write(ctx context.Context, first, n, rate int) ([]int64, error) {
	var (
		wait    sync.WaitGroup
		next    atomic.Int64
		mu      sync.Mutex
		errs    []error
		commits = make([]int64, n)
		begin   = time.Now()
	)
	for range w.pool.Config().MaxConns {
		wait.Go(func() {
			for i := int(next.Add(1) - 1); i < n && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				until(ctx, begin.Add(time.Duration(i)*time.Second/time.Duration(rate)))
				err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error { return w.insert(ctx, tx, contender.NewMessage(first+i)) })
				commits[i] = time.Now().UnixNano()
				if err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wait.Wait()
	return commits, errors.Join(append(errs, ctx.Err())...)
}

func until(ctx context.Context, at time.Time) {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
