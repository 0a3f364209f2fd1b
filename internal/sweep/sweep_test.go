package sweep

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Sweep
		if !s.Begin(5) || !s.GoesOn() || s.At() != 5 {
			t.Fatal("the first one does not begin at once")
		}
		if free := s.Step(10, 0, true); free != 0 || !s.GoesOn() || s.At() != 10 {
			t.Fatalf("after a page: %d, %+v", free, s)
		}
		time.Sleep(10 * time.Second)
		s.Step(20, 13, true)
		if free := s.Step(30, 25, false); free != 12 || s.GoesOn() {
			t.Fatalf("after the last page: %d, %+v", free, s)
		}
		time.Sleep(share*10*time.Second - 1)
		if s.Begin(12) {
			t.Fatal("another one begins although the last one took long")
		}
		time.Sleep(time.Nanosecond)
		if !s.Begin(12) {
			t.Fatal("no other one begins in time")
		}
		if free := s.Step(0, 0, true); free != 0 || s.GoesOn() {
			t.Fatalf("where nothing could be looked at: %d, %+v", free, s)
		}
		time.Sleep(every)
		if !s.Begin(12) {
			t.Fatal("no other one begins")
		}
		if free := s.Step(40, 0, false); free != 40 {
			t.Fatalf("where nothing is needed: free up to %d", free)
		}
	})
}

func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lines[string]
		loads := 0
		load := func() ([]string, error) { loads++; return []string{"a", "b"}, nil }
		next := func(want string, after int64) {
			t.Helper()
			line, at, ok, err := l.Next(load)
			if err != nil || ok != (want != "") || line != want || at != after {
				t.Fatalf("%q after %d (%v, %v), want %q after %d", line, at, ok, err, want, after)
			}
		}
		next("b", 0)
		if !l.Step(7, true) {
			t.Fatal("over after a full page")
		}
		next("b", 7)
		if !l.Step(9, false) {
			t.Fatal("over after the first line")
		}
		next("a", 0)
		if l.Step(0, false) {
			t.Fatal("not over after the last line")
		}
		next("", 0)
		time.Sleep(every)
		next("b", 0)
		l.Stop()
		next("", 0)
		time.Sleep(every)
		broken := errors.New("broken")
		if _, _, ok, err := l.Next(func() ([]string, error) { return nil, broken }); ok || !errors.Is(err, broken) {
			t.Fatalf("%v, %v", ok, err)
		}
		next("", 0)
		if loads != 2 {
			t.Fatalf("the lines were asked for %d times", loads)
		}
	})
}
