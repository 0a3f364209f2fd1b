package membroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/inbox"
)

// Defaults of a Consumer's fields.
const (
	DefaultConcurrency = 4
	DefaultRedelivery  = time.Second
)

// Consumer is an inbox.Consumer. Change its fields before its first use.
type Consumer struct {
	// Broker and Queue are where the messages come from. Required.
	Broker *Broker
	Queue  string
	// Concurrency is how many handlers run at the same time. Default
	// DefaultConcurrency.
	Concurrency int
	// Redelivery is how long a message stays invisible after its handler
	// failed. Default DefaultRedelivery.
	Redelivery time.Duration
	// MaxReceives is how often a message is handed out before it goes to the
	// queue DeadLetters instead. 0: for ever.
	MaxReceives int
	// DeadLetters is required with MaxReceives.
	DeadLetters string
}

// Consume implements inbox.Consumer. A handler that panics has failed.
func (c *Consumer) Consume(ctx context.Context, handle inbox.Handler) error {
	if err := c.check(); err != nil {
		return err
	}
	workers := c.Concurrency
	if workers == 0 {
		workers = DefaultConcurrency
	}
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for {
				w := c.take(ctx)
				if w == nil {
					return
				}
				c.finish(w, call(context.WithoutCancel(ctx), handle, w))
			}
		})
	}
	group.Wait()
	return nil
}

func (c *Consumer) check() error {
	var errs []error
	if c.Broker == nil || c.Queue == "" {
		errs = append(errs, errors.New("a broker and a queue are required"))
	}
	if c.Concurrency < 0 || c.Redelivery < 0 || c.MaxReceives < 0 {
		errs = append(errs, errors.New("neither concurrency, redelivery nor max receives may be negative"))
	}
	if c.MaxReceives > 0 && c.DeadLetters == "" {
		errs = append(errs, errors.New("max receives needs a queue for dead letters"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("membroker: consumer: %w", err)
	}
	return nil
}

func call(ctx context.Context, handle inbox.Handler, w *waiting) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("membroker: the handler panicked: %v", p)
		}
	}()
	return handle(ctx, w.message)
}

// take waits for a message; nil once ctx has ended.
func (c *Consumer) take(ctx context.Context) *waiting {
	for ctx.Err() == nil {
		w, next, changed := c.tryTake()
		if w != nil {
			return w
		}
		var due <-chan time.Time
		var timer *time.Timer
		if !next.IsZero() {
			timer = time.NewTimer(time.Until(next))
			due = timer.C
		}
		select {
		case <-changed:
		case <-due:
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
	}
	return nil
}

func (c *Consumer) tryTake() (w *waiting, next time.Time, changed <-chan struct{}) {
	c.Broker.mu.Lock()
	defer c.Broker.mu.Unlock()
	q := c.Broker.queue(c.Queue)
	now := time.Now()
	for _, w := range q.waiting {
		switch {
		case w.taken:
		case w.visible.After(now):
			if next.IsZero() || w.visible.Before(next) {
				next = w.visible
			}
		default:
			w.taken = true
			w.receives++
			return w, time.Time{}, nil
		}
	}
	return nil, next, q.changed
}

// finish removes a handled message, and lets a failed one come again or moves
// it to the dead letters.
func (c *Consumer) finish(w *waiting, err error) {
	c.Broker.mu.Lock()
	defer c.Broker.mu.Unlock()
	q := c.Broker.queue(c.Queue)
	dead := err != nil && c.MaxReceives > 0 && w.receives >= c.MaxReceives
	if err == nil || dead {
		q.waiting = slices.DeleteFunc(q.waiting, func(other *waiting) bool { return other == w })
		if dead {
			d := c.Broker.queue(c.DeadLetters)
			d.log = append(d.log, w.message)
			d.waiting = append(d.waiting, &waiting{message: w.message})
			d.wake()
		}
		return
	}
	redelivery := c.Redelivery
	if redelivery == 0 {
		redelivery = DefaultRedelivery
	}
	w.taken, w.visible = false, time.Now().Add(redelivery)
	q.wake()
}
