// Package page is the page of the demo: the shop as a drawing in which every
// message is seen on its way, with buttons that break things. It is rendered
// here; the browser gets what changes as server-sent events.
package page

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Source is what the page shows. Its methods are called often, must not wait
// for anybody, and are safe for concurrent use.
type Source interface {
	// View is how everything is now.
	View() View
	// Hops are those after the first so many, and how many there were in all.
	Hops(after int) ([]Hop, int)
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
}

// Config is what the page needs.
type Config struct {
	// Source is what is shown. Required.
	Source Source
	// Place places n orders as a client of the shop does, and returns the id of
	// the last one. A *Refusal says what was wrong with the request. Required.
	Place func(ctx context.Context, n int, customer string, amountCents int64) (id string, err error)
	// Search finds orders, and says how many there are besides those that it
	// returns. nil: the page has no search.
	Search func(ctx context.Context, query string) (hits []Hit, total int, err error)
	// Experiments are the buttons that break things, in order.
	Experiments []Experiment
	// Logger gets what viewers must not see. Default: slog.Default.
	Logger *slog.Logger
}

// Refusal is what the order service had against a request.
type Refusal struct{ Detail string }

func (r *Refusal) Error() string { return r.Detail }

// Limits.
const (
	// MaxViewers is how many browsers may watch at the same time.
	MaxViewers = 64
	// frameEvery is the least time between two frames.
	frameEvery = 100 * time.Millisecond
	// lookEvery is the most.
	lookEvery = time.Second
)

// Page serves the page. Run it while it serves.
type Page struct {
	config Config
	log    *slog.Logger
	hub    *hub
	lab    *lab
	placer chan struct{} // how many requests may place orders at the same time
}

// New returns a Page, or all that is wrong with the config.
func New(c Config) (*Page, error) {
	var errs []error
	if c.Source == nil {
		errs = append(errs, errors.New("page: Config.Source is nil"))
	}
	if c.Place == nil {
		errs = append(errs, errors.New("page: Config.Place is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	p := &Page{config: c, log: c.Logger, hub: newHub(), lab: newLab(c.Experiments), placer: make(chan struct{}, maxPlacing)}
	if p.log == nil {
		p.log = slog.Default()
	}
	return p, nil
}

// Run sends what changes to the viewers and runs the experiments that they ask
// for, until ctx ends; then it lets the experiments put back what they broke,
// and ends all streams.
func (p *Page) Run(ctx context.Context) error {
	defer p.hub.close()
	var experiments sync.WaitGroup
	defer experiments.Wait()
	defer p.lab.close()
	hops := 0
	var crier crier
	for {
		sourceChanged, labChanged := p.config.Source.Changed(), p.lab.changedNow()
		var passed []Hop
		passed, hops = p.config.Source.Hops(hops)
		d := p.data()
		events, err := d.render()
		if err != nil {
			return err
		}
		p.hub.publish(events, passed, crier.say(d, time.Now()))
		pause := time.NewTimer(frameEvery)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		}
		look := time.NewTimer(lookEvery)
		select {
		case <-ctx.Done():
		case <-sourceChanged:
		case <-labChanged:
		case <-look.C:
		case start := <-p.lab.starts:
			experiments.Go(func() { p.lab.run(ctx, start) })
		}
		look.Stop()
	}
}
