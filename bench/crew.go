package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// crew are processes that work at the same time on one database.
type crew struct {
	server    int // process id of the server
	processes []*process
	begun     time.Time
	before    time.Duration // the server's processor time then
	samples   []sample
}

// sample is how many messages each process had at a time.
type sample struct {
	at     time.Duration // since the beginning
	counts []int
}

func (s sample) total() (n int) {
	for _, c := range s.counts {
		n += c
	}
	return n
}

// crew starts a process for each job and waits until all are ready.
func (b *bench) crew(ctx context.Context, jobs ...job) (*crew, error) {
	c := &crew{server: b.server.PID()}
	for _, j := range jobs {
		p, err := startProcess(ctx, j)
		if err != nil {
			c.close()
			return nil, err
		}
		c.processes = append(c.processes, p)
	}
	return c, nil
}

// begin starts the clock of all.
func (c *crew) begin() error { return c.mark("go") }

// mark takes the processor times anew.
func (c *crew) mark(line string) error {
	c.begun, c.before = time.Now(), treeTime(c.server)
	for _, p := range c.processes {
		if err := p.tell(line); err != nil {
			return err
		}
	}
	return nil
}

// await waits until the processes have n messages together, one ends, or time
// is up.
func (c *crew) await(ctx context.Context, n int, limit time.Duration) {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for time.Since(c.begun) < limit {
		now := sample{at: time.Since(c.begun), counts: make([]int, len(c.processes))}
		for i, p := range c.processes {
			now.counts[i] = int(p.count.Load())
			select {
			case <-p.done:
				return
			default:
			}
		}
		c.samples = append(c.samples, now)
		if now.total() >= n {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// finish stops all processes. It returns what each measured, and the server's
// processor time since the beginning.
func (c *crew) finish(ctx context.Context) (outs []outcome, server time.Duration, err error) {
	for _, p := range c.processes {
		_ = p.tell("stop") // one that has ended already says why below
	}
	outs = make([]outcome, len(c.processes))
	var errs []error
	for i, p := range c.processes {
		outs[i], err = p.wait(ctx)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, 0, err
	}
	for i, out := range outs {
		if out.Count != out.Distinct {
			return nil, 0, fmt.Errorf("process %d got %d messages, of which %d different ones", i+1, out.Count, out.Distinct)
		}
	}
	return outs, treeTime(c.server) - c.before, nil
}

// close ends what still runs.
func (c *crew) close() {
	for _, p := range c.processes {
		p.kill()
	}
}
