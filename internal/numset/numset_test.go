package numset

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The set agrees with a map after any sequence of changes, and its ranges stay
// sorted, apart and non-empty.
func TestSetAgreesWithMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Set
		model := map[int64]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				a, n := rapid.Int64Range(0, 60).Draw(t, "first"), rapid.Int64Range(-1, 12).Draw(t, "more")
				s.Add(a, a+n)
				for i := a; i <= a+n; i++ {
					model[i] = true
				}
			},
			"remove": func(t *rapid.T) {
				a, n := rapid.Int64Range(0, 60).Draw(t, "first"), rapid.Int64Range(-1, 12).Draw(t, "more")
				s.Remove(a, a+n)
				for i := a; i <= a+n; i++ {
					delete(model, i)
				}
			},
			"": func(t *rapid.T) {
				var want []int64
				for n := int64(-1); n < 80; n++ {
					if s.Has(n) != model[n] {
						t.Fatalf("Has(%d) = %v", n, s.Has(n))
					}
					if model[n] {
						want = append(want, n)
					}
				}
				if got := slices.Collect(s.All()); !slices.Equal(got, want) {
					t.Fatalf("have %v, want %v", got, want)
				}
				if s.Len() != int64(len(want)) || s.Empty() != (len(want) == 0) {
					t.Fatalf("Len %d, Empty %v for %v", s.Len(), s.Empty(), want)
				}
				for i, r := range s.Ranges() {
					if r.First > r.Last || i > 0 && s.Ranges()[i-1].Last+1 >= r.First {
						t.Fatalf("ranges %v", s.Ranges())
					}
				}
				upTo := s.UpTo(30)
				if got := slices.Collect(upTo.All()); !slices.Equal(got, slices.DeleteFunc(want, func(n int64) bool { return n > 30 })) {
					t.Fatalf("UpTo(30) = %v", got)
				}
			},
		})
	})
}
