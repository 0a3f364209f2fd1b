package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/bench/contender"
)

// task is one run of one contender: to publish messages that are there already.
type task struct {
	entry     contender.Entry
	first, n  int // the numbers of the messages are n from first on
	processes int // how many work at the same time; 0: 1
	reader    string
	delay     time.Duration
	stalls    bool // that nothing comes at all is a result and no mistake
}

// ran is what a run measured.
type ran struct {
	outs    []outcome
	server  time.Duration // the server's processor time
	samples []sample
	count   int // messages published
	cut     bool
	limit   time.Duration
}

// do runs a task until its messages are published or time is up.
func (b *bench) do(ctx context.Context, d *database, t task) (ran, error) {
	if _, again := t.entry.Contender.(contender.Rereads); !again {
		d.fresh = 0
	}
	o := contender.Options{URL: d.url, Reader: t.reader, Delay: t.delay, After: t.first, Verify: b.verify}
	if o.Reader == "" {
		o.Reader = b.reader()
	}
	jobs := make([]job, max(t.processes, 1))
	for i := range jobs {
		jobs[i] = job{Contender: t.entry.ID, Messages: t.first + t.n, Options: o}
	}
	r, err := b.runCrew(ctx, t.n, jobs)
	if err == nil {
		err = r.check(t, b.verify)
	}
	if err != nil {
		return ran{}, fmt.Errorf("%s: %w", t.entry.Name, err)
	}
	return r, nil
}

func (b *bench) runCrew(ctx context.Context, n int, jobs []job) (r ran, err error) {
	c, err := b.crew(ctx, jobs...)
	if err != nil {
		return r, err
	}
	defer c.close()
	if err := c.begin(); err != nil {
		return r, err
	}
	c.await(ctx, n, b.limit)
	if r.outs, r.server, err = c.finish(ctx); err != nil {
		return r, err
	}
	for _, out := range r.outs {
		r.count += out.Count
	}
	r.samples, r.limit, r.cut = c.samples, b.limit, r.count < n
	return r, nil
}

// check reports messages that came twice or that nobody had put there, and where
// all are wanted those that did not come.
func (r ran) check(t task, all bool) error {
	sum := 0
	for _, out := range r.outs {
		sum += out.Sum
	}
	switch {
	case r.count > t.n:
		return fmt.Errorf("%d messages came where there were %d", r.count, t.n)
	case r.count == t.n && sum != t.n*t.first+t.n*(t.n-1)/2:
		return errors.New("other messages came than there were")
	case !t.stalls && (r.count == 0 || all && r.cut):
		return fmt.Errorf("%d messages of %d came within %v", r.count, t.n, r.limit)
	}
	return nil
}

// elapsed is how long the messages took, or how long was waited for them.
func (r ran) elapsed() time.Duration {
	if r.cut {
		return r.limit
	}
	var last time.Duration
	for _, out := range r.outs {
		last = max(last, out.Elapsed)
	}
	return last
}

// first is how long the first message took.
func (r ran) first() time.Duration { return r.outs[0].ToFirst }

// rate is messages per second from the start of the clock on.
func (r ran) rate() float64 { return perSecond(r.count, r.elapsed()) }

// steady is messages per second from the first batch on, which leaves starting
// out: it matters where the whole run is a few milliseconds.
func (r ran) steady() float64 {
	out := r.outs[0]
	if r.cut || out.Count <= 2*out.Head {
		return r.rate()
	}
	return perSecond(out.Count-out.Head, out.Elapsed-out.ToFirst)
}

// together is messages per second while every process had some, and the part
// that the first of them had. Where one never had any, it counts from the first
// message on, and where all came at once from the start of the clock.
func (r ran) together() (rate, part float64) {
	if len(r.samples) == 0 {
		return 0, 0
	}
	end := r.samples[len(r.samples)-1]
	begin := -1
	for i, s := range r.samples {
		all := true
		for _, c := range s.counts {
			all = all && c > 0
		}
		if all || begin < 0 && s.total() > 0 {
			begin = i
		}
		if all {
			break
		}
	}
	from := sample{counts: make([]int, len(end.counts))}
	if begin >= 0 && r.samples[begin].total() < end.total() {
		from = r.samples[begin]
	}
	n := max(1, end.total()-from.total())
	return perSecond(n, end.at-from.at), float64(end.counts[0]-from.counts[0]) / float64(n)
}

func perSecond(n int, t time.Duration) float64 {
	if t <= 0 {
		return 0
	}
	return float64(n) / t.Seconds()
}

// perMessage is a time's microseconds for each message.
func (r ran) perMessage(t time.Duration) float64 {
	return float64(t.Nanoseconds()) / 1000 / float64(max(r.count, 1))
}

// client is the processor time of all processes.
func (r ran) client() (t time.Duration) {
	for _, out := range r.outs {
		t += out.CPU
	}
	return t
}

// peak is the most that one process had resident, in MiB.
func (r ran) peak() (mib float64) {
	for _, out := range r.outs {
		mib = max(mib, float64(out.Peak)/(1<<20))
	}
	return mib
}
