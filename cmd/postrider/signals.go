package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameSignal is how long a signal that comes again is taken for the same one:
// who ends a process and then its group, as timeout(1) does, sends two.
const sameSignal = 500 * time.Millisecond

// untilSignal returns a context that ends with the first SIGTERM or SIGINT; the
// second one ends the process at once. Call release when the work is done.
func untilSignal(parent context.Context, logger *slog.Logger, exit func(int)) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		var first os.Signal
		var at time.Time
		for {
			select {
			case <-done:
				return
			case s := <-signals:
				if s == first && time.Since(at) < sameSignal {
					continue
				}
				if first != nil {
					logger.Error("second signal: ending at once, messages in flight may be published again", "signal", s.String())
					exit(exitUnsettled)
				}
				logger.Info("stopping: finishing what was sent, a second signal ends at once", "signal", s.String())
				first, at = s, time.Now()
				cancel()
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		<-ended
		cancel()
	}
}
