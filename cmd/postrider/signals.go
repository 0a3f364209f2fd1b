package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that ends with the first SIGTERM or SIGINT; the
// second one ends the process at once. Call release when the work is done.
func untilSignal(parent context.Context, logger *slog.Logger, exit func(int)) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for first := true; ; first = false {
			select {
			case <-done:
				return
			case s := <-signals:
				if !first {
					logger.Error("second signal: ending at once, messages in flight may be published again", "signal", s.String())
					exit(exitUnsettled)
				}
				logger.Info("stopping: finishing what was sent, a second signal ends at once", "signal", s.String())
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
