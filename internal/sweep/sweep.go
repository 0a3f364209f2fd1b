// Package sweep says when, and from where, a store goes once more over messages
// that could not be deleted when it looked at them. Not safe for concurrent use.
package sweep

import "time"

const (
	// A sweep begins every so often, or share times as long after the last one
	// as that took, if that is more.
	every = 10 * time.Second
	share = 20
)

// Sweep goes over numbers, page by page, from time to time. The zero value
// begins at once.
type Sweep struct {
	next  time.Time // not before this
	began time.Time // zero: none is under way
	at    int64
	first int64 // the lowest number that may still be needed; 0: none so far
}

// GoesOn reports whether one is under way.
func (s *Sweep) GoesOn() bool { return !s.began.IsZero() }

// At is the number after which the next page begins.
func (s *Sweep) At() int64 { return s.at }

// Begin reports whether it is time for one, which then is under way.
func (s *Sweep) Begin(after int64) bool {
	now := time.Now()
	if now.Before(s.next) {
		return false
	}
	*s = Sweep{began: now, at: after}
	return true
}

// Step notes a page that ended at last, 0 if nothing could be looked at, and in
// which first is the lowest number still needed, 0 for none. After the last page
// the sweep has stopped, and free is the number up to which nothing is needed;
// before that it is 0.
func (s *Sweep) Step(last, first int64, more bool) (free int64) {
	if s.first == 0 {
		s.first = first
	}
	s.at = last
	if more && last > 0 {
		return 0
	}
	s.Stop()
	if s.first > 0 {
		return s.first - 1
	}
	return last
}

// Stop ends the one that is under way, if any.
func (s *Sweep) Stop() {
	if s.GoesOn() {
		now := time.Now()
		s.next = now.Add(max(every, share*now.Sub(s.began)))
		s.began = time.Time{}
	}
}

// Lines goes over several lines of numbers, one after the other, from time to
// time. The zero value begins at once.
type Lines[L any] struct {
	sweep Sweep
	left  []L // the present one last
}

// Next is the line of which a page is to be looked at, and after which number;
// ok is false if it is not time for one. load tells the lines, once a sweep.
func (l *Lines[L]) Next(load func() ([]L, error)) (line L, after int64, ok bool, err error) {
	if !l.sweep.GoesOn() {
		if !l.sweep.Begin(0) {
			return line, 0, false, nil
		}
		if l.left, err = load(); err != nil || len(l.left) == 0 {
			l.sweep.Stop()
			return line, 0, false, err
		}
	}
	return l.left[len(l.left)-1], l.sweep.at, true, nil
}

// Step notes a page of Next's line, which ended at last. It reports whether the
// sweep goes on.
func (l *Lines[L]) Step(last int64, more bool) bool {
	l.sweep.at = last
	if !more {
		l.left, l.sweep.at = l.left[:len(l.left)-1], 0
	}
	if len(l.left) == 0 {
		l.sweep.Stop()
	}
	return l.sweep.GoesOn()
}

// Stop ends the one that is under way, if any.
func (l *Lines[L]) Stop() { l.sweep.Stop() }
