package poll

import (
	"time"

	"github.com/postrider/postrider/internal/numset"
)

// A group is numbers that were missing when one statement looked for them. Each
// belongs to a transaction that is still open, or was rolled back.
type group struct {
	id      int64 // unique within the cursor
	numbers numset.Set
	saved   numset.Set // what the database has under id

	seen *snapshot // of the last statement that looked for the numbers; nil: none has
	// fence is a transaction id of ours, taken after the numbers were found
	// missing; 0: not yet. Whoever drew one of them had an id before drawing
	// it, so below fence: when all of those have ended, a number that is still
	// missing will be missing for ever.
	fence  uint64
	fenced time.Time // when fence was taken
	orphan bool      // no open transaction below fence has written to the log
	found  time.Time
}

// dead reports whether the numbers that a statement with this snapshot did not
// find can never appear. tail was drawn: a number after it may be drawn yet, where
// somebody has inserted a row with a number that he chose.
func (g *group) dead(s *snapshot, tail int64) bool {
	ranges := g.numbers.Ranges()
	if g.fence == 0 || len(ranges) > 0 && ranges[len(ranges)-1].Last > tail {
		return false
	}
	_, open := s.oldestBelow(g.fence)
	return !open || g.orphan
}

// gaps are all missing numbers up to the reading position.
type gaps struct {
	groups []*group
	gone   []int64 // ids of groups that are no more but that the database still has
	lastID int64
}

func (g *gaps) empty() bool { return len(g.groups) == 0 }

func (g *gaps) add(numbers numset.Set, seen *snapshot) {
	if numbers.Empty() {
		return
	}
	g.lastID++
	g.groups = append(g.groups, &group{id: g.lastID, numbers: numbers, seen: seen, found: time.Now()})
}

// load puts a group back that the database has. One without numbers, which
// somebody may have written by hand, is only to be deleted: a statement that looks
// for nothing would never be over.
func (g *gaps) load(id int64, numbers numset.Set) {
	g.lastID = max(g.lastID, id)
	if numbers.Empty() {
		g.gone = append(g.gone, id)
		return
	}
	g.groups = append(g.groups, &group{id: id, numbers: numbers, saved: numbers.Clone(), found: time.Now()})
}

// total is how many numbers are missing.
func (g *gaps) total() int64 {
	var n int64
	for _, group := range g.groups {
		n += group.numbers.Len()
	}
	return n
}

// all is every missing number.
func (g *gaps) all() numset.Set {
	var set numset.Set
	for _, group := range g.groups {
		for _, r := range group.numbers.Ranges() {
			set.Add(r.First, r.Last)
		}
	}
	return set
}

// remove takes a number out that was found, and reports whether it was missing.
func (g *gaps) remove(n int64) bool {
	for _, group := range g.groups {
		if group.numbers.Has(n) {
			group.numbers.Remove(n, n)
			return true
		}
	}
	return false
}

// probed takes note that a statement with this snapshot looked for every number
// and that what it found was removed.
func (g *gaps) probed(s *snapshot, tail int64) {
	kept := g.groups[:0]
	for _, group := range g.groups {
		if group.numbers.Empty() || group.dead(s, tail) {
			if !group.saved.Empty() {
				g.gone = append(g.gone, group.id)
			}
			continue
		}
		group.seen = s
		kept = append(kept, group)
	}
	clear(g.groups[len(kept):])
	g.groups = kept
}

// worthProbing reports whether a missing number may have appeared by the
// snapshot, or can be given up.
func (g *gaps) worthProbing(s *snapshot, tail int64) bool {
	for _, group := range g.groups {
		if group.seen == nil || group.dead(s, tail) || group.seen.finishedSince(s, group.fence) {
			return true
		}
	}
	return false
}

// unprobed reports whether some group was loaded and never looked for.
func (g *gaps) unprobed() bool {
	for _, group := range g.groups {
		if group.seen == nil {
			return true
		}
	}
	return false
}
