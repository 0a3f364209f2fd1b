// Package numset holds sets of sequence numbers as ranges.
package numset

import (
	"iter"
	"slices"
	"sort"
)

// Range is the numbers from First to Last, both included.
type Range struct{ First, Last int64 }

// Len is how many numbers the range has.
func (r Range) Len() int64 { return r.Last - r.First + 1 }

// Set is a set of numbers, kept as sorted ranges that neither overlap nor
// touch. The zero value is empty. Not safe for concurrent use.
type Set struct{ ranges []Range }

// Of returns the set of the given ranges, in any order; empty ones count for
// nothing.
func Of(ranges ...Range) Set {
	var s Set
	for _, r := range ranges {
		s.Add(r.First, r.Last)
	}
	return s
}

// Add puts the numbers first to last into the set.
func (s *Set) Add(first, last int64) {
	if first > last {
		return
	}
	// Ranges i to j-1 overlap or touch the new one.
	i := sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].Last >= first-1 })
	j := i
	for j < len(s.ranges) && s.ranges[j].First <= last+1 {
		first = min(first, s.ranges[j].First)
		last = max(last, s.ranges[j].Last)
		j++
	}
	s.ranges = slices.Replace(s.ranges, i, j, Range{first, last})
}

// Remove takes the numbers first to last out of the set.
func (s *Set) Remove(first, last int64) {
	if first > last {
		return
	}
	i := sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].Last >= first })
	j := i
	var rest []Range
	for j < len(s.ranges) && s.ranges[j].First <= last {
		if r := s.ranges[j]; r.First < first {
			rest = append(rest, Range{r.First, first - 1})
		}
		if r := s.ranges[j]; r.Last > last {
			rest = append(rest, Range{last + 1, r.Last})
		}
		j++
	}
	s.ranges = slices.Replace(s.ranges, i, j, rest...)
}

// Has reports whether n is in the set.
func (s *Set) Has(n int64) bool {
	i := sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].Last >= n })
	return i < len(s.ranges) && s.ranges[i].First <= n
}

// Len is how many numbers the set has.
func (s *Set) Len() int64 {
	var n int64
	for _, r := range s.ranges {
		n += r.Len()
	}
	return n
}

// Empty reports whether the set has no number.
func (s *Set) Empty() bool { return len(s.ranges) == 0 }

// Ranges are the set's ranges in order. The slice is the set's own: it holds
// until the next change and is not to be written to.
func (s *Set) Ranges() []Range { return s.ranges }

// All yields the numbers in order.
func (s *Set) All() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for _, r := range s.ranges {
			for n := r.First; n <= r.Last; n++ {
				if !yield(n) {
					return
				}
			}
		}
	}
}

// UpTo is the subset of the numbers that are at most n.
func (s *Set) UpTo(n int64) Set {
	var out Set
	for _, r := range s.ranges {
		if r.First > n {
			break
		}
		out.ranges = append(out.ranges, Range{r.First, min(r.Last, n)})
	}
	return out
}

// Clone is a copy that shares nothing.
func (s *Set) Clone() Set { return Set{slices.Clone(s.ranges)} }
