package pgstore

import "time"

const (
	// What was left behind is looked at again after sweepEvery, or after
	// sweepShare times as long as it took the last time, if that is more.
	sweepEvery = time.Minute
	sweepShare = 20
)

// sweep goes page by page over what was left behind, from time to time.
type sweep struct {
	next  time.Time // not before this
	began time.Time // zero: none is under way
	at    int64     // where the next page begins: after this number
	first int64     // the lowest number that may still be needed; 0: none so far
}

func (s *sweep) goesOn() bool { return !s.began.IsZero() }

// begin reports whether it is time for one, which then is under way.
func (s *sweep) begin(after int64) bool {
	now := time.Now()
	if now.Before(s.next) {
		return false
	}
	*s = sweep{began: now, at: after}
	return true
}

// step notes a page that ended at last, 0 if nothing could be looked at, and in
// which first is the lowest number still needed, 0 for none. After the last page
// it returns up to where nothing is needed, otherwise 0.
func (s *sweep) step(last, first int64, more bool) (free int64) {
	if s.first == 0 {
		s.first = first
	}
	s.at = last
	if more && last > 0 {
		return 0
	}
	s.stop()
	if s.first > 0 {
		return s.first - 1
	}
	return last
}

// stop ends the one that is under way, if any.
func (s *sweep) stop() {
	if s.goesOn() {
		now := time.Now()
		s.next = now.Add(max(sweepEvery, sweepShare*now.Sub(s.began)))
		s.began = time.Time{}
	}
}
