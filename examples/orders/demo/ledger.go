package demo

import (
	"slices"
	"sync"
	"time"
)

// ledger notes when each order of this run was committed and when it was
// fulfilled. It is safe for concurrent use.
type ledger struct {
	mu         sync.Mutex
	committed  map[string]time.Time
	fulfilled  map[string]time.Time
	open       int // committed and not fulfilled
	duplicates int
	changed    chan struct{} // closed and replaced at each change
}

func newLedger() *ledger {
	return &ledger{
		committed: make(map[string]time.Time),
		fulfilled: make(map[string]time.Time),
		changed:   make(chan struct{}),
	}
}

func (l *ledger) commit(order string) {
	now := time.Now()
	l.update(func() {
		l.committed[order] = now
		if _, ok := l.fulfilled[order]; !ok { // it can be faster than this note
			l.open++
		}
	})
}

// fulfil reports how long it took since the commit, if both are known.
func (l *ledger) fulfil(order string, duplicate bool) (took time.Duration, known bool) {
	now := time.Now()
	l.update(func() {
		if duplicate {
			l.duplicates++
			return
		}
		l.fulfilled[order] = now
		var committed time.Time
		if committed, known = l.committed[order]; known {
			l.open--
			took = now.Sub(committed)
		}
	})
	return took, known
}

func (l *ledger) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}

// progress is the number of orders of this run that are not fulfilled yet, the
// number of all that were fulfilled, and a channel that is closed when either
// has changed.
func (l *ledger) progress() (open, fulfilled int, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, len(l.fulfilled), l.changed
}

// delays are the times from commit to fulfilment, shortest first, and the
// number of deliveries that were duplicates.
func (l *ledger) delays() (delays []time.Duration, duplicates int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for order, end := range l.fulfilled {
		if begin, ok := l.committed[order]; ok {
			delays = append(delays, max(end.Sub(begin), 0))
		}
	}
	slices.Sort(delays)
	return delays, l.duplicates
}

// percentile is the smallest delay that p per cent of them do not exceed
// (nearest rank).
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}
