package page

import (
	"context"
	"strings"
	"sync"
	"time"
)

// Experiment breaks something and shows what happens.
type Experiment struct {
	Name   string // part of a path: "kill-relay"
	Title  string // what is done: "Kill the relay"
	Button string // what the button says
	// Expect says what will be seen.
	Expect string
	// Run does it: it breaks something, tells how it goes with say, puts
	// everything back, also when ctx ends, and returns how it ended. An error
	// means that it did not end as expected.
	Run func(ctx context.Context, say func(string)) (outcome string, err error)
}

// trial is how one experiment stands.
type trial struct {
	Experiment
	Running bool
	// Text is the latest news, or how it ended.
	Text string
	Bad  bool
	At   time.Time // of the end; zero: it was not tried yet
}

// lab runs one experiment at a time, so that what is seen has one cause.
type lab struct {
	starts chan int // the claimed one; has room for it, since there is one at a time

	mu      sync.Mutex
	trials  []trial
	running int // -1: none
	closed  bool
	changed chan struct{}
}

func newLab(experiments []Experiment) *lab {
	l := &lab{starts: make(chan int, 1), running: -1, changed: make(chan struct{})}
	for _, e := range experiments {
		l.trials = append(l.trials, trial{Experiment: e})
	}
	return l
}

// claim takes the lab for the experiment of that name. found is false if there
// is none; busy is the title of the one that is running.
func (l *lab) claim(name string) (index int, found bool, busy string, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.trials {
		if l.trials[i].Name != name {
			continue
		}
		if l.running >= 0 {
			return 0, true, l.trials[l.running].Title, false
		}
		if l.closed {
			return 0, true, "", true
		}
		l.running = i
		l.trials[i].Running, l.trials[i].Text, l.trials[i].Bad = true, "", false
		l.change()
		return i, true, "", false
	}
	return 0, false, "", false
}

// run runs the claimed experiment.
func (l *lab) run(ctx context.Context, index int) {
	outcome, err := l.trials[index].Run(ctx, func(news string) {
		l.update(func() { l.trials[index].Text = news })
	})
	l.update(func() {
		t := &l.trials[index]
		t.Running, t.Text, t.At = false, outcome, time.Now()
		if err != nil {
			t.Bad, t.Text = true, strings.TrimSuffix(err.Error(), ".")+"."
		}
		l.running = -1
	})
}

// all are the experiments as they stand, and the one that is running, or nil.
func (l *lab) all() (trials []trial, running *trial) {
	l.mu.Lock()
	defer l.mu.Unlock()
	trials = append(trials, l.trials...)
	if l.running >= 0 {
		running = &trials[l.running]
	}
	return trials, running
}

// close takes no more experiments.
func (l *lab) close() {
	l.update(func() { l.closed = true })
}

func (l *lab) changedNow() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

func (l *lab) update(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	l.change()
}

func (l *lab) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}
