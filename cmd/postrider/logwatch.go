package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/store/pgstore"
)

// watchLogEvery is how often it is looked at what somebody has changed about the
// log by hand, as often as the relay looks itself.
const watchLogEvery = 10 * time.Second

// logWatch tells of what somebody has changed about the log by hand and that does
// not stop the relay, which tells of everything else itself. Safe for concurrent use.
type logWatch struct {
	find func(context.Context) ([]admin.LogProblem, error)
	log  *slog.Logger

	mu    sync.Mutex
	found []string
}

// newLogWatch returns nil where there is nothing to watch.
func newLogWatch(db database, shards int, log *slog.Logger) *logWatch {
	p, ok := db.(*postgres)
	if !ok {
		return nil
	}
	return &logWatch{log: log, find: func(ctx context.Context) (all []admin.LogProblem, err error) {
		for shard := range shards {
			problems, err := pgstore.Inspect(ctx, p.pool, p.schema, shard)
			if err != nil {
				return nil, err
			}
			all = append(all, problems...)
		}
		return all, nil
	}}
}

// start looks now and then, until ctx ends or the function that it returns is
// called. A database that does not answer is the relay's to tell.
func (w *logWatch) start(ctx context.Context) (stop func()) {
	if w == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		every := time.NewTicker(watchLogEvery)
		defer every.Stop()
		for ctx.Err() == nil {
			w.look(ctx)
			select {
			case <-every.C:
			case <-ctx.Done():
			}
		}
	})
	return func() { cancel(); running.Wait() }
}

func (w *logWatch) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, watchLogEvery)
	defer cancel()
	problems, err := w.find(ctx)
	if err != nil {
		return
	}
	var found []string
	for _, p := range problems {
		if p.Stops {
			continue
		}
		found = append(found, p.String())
		if !slices.Contains(w.notes(), found[len(found)-1]) {
			w.log.Warn("somebody has changed the log by hand", "shard", p.Shard, "problem", p.Text, "mend", p.Mend)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = found
}

// notes are what was found last.
func (w *logWatch) notes() []string {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.found)
}
