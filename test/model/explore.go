package model

import (
	"fmt"
	"strings"
)

// Result is what an exploration found.
type Result struct {
	States, Steps int
	Depth         int // the longest way of those that are the shortest to their state

	// Broken is the promise that was broken first, on a shortest way; empty if
	// none was. Trace is that way, for people.
	Broken string
	Trace  string
}

// stuck is broken where some state has no way to a good end.
const stuck = "there is no way left to an end at which every message is settled"

// lost is in a trace that could not be told.
const lost = "(from here on the way cannot be found again)\n"

// explorer walks through all states of one instance, breadth first.
type explorer struct {
	m      *model
	ids    map[hash]uint32
	hashes []hash
	parent []uint32
	next   []uint32 // the states that each state's steps lead to, one after another
	begins []uint32 // where those of a state begin in next
	done   []bool
}

// Explore walks through every state that the instance can be in and checks every
// promise in each; ok is false when there are more than limit states.
func Explore(instance Instance, limit int) (r Result, ok bool) {
	return explore(newModel(instance), limit)
}

func explore(m *model, limit int) (r Result, ok bool) {
	x := &explorer{m: m, ids: map[hash]uint32{}}
	start := m.start()
	level := []state{start}
	x.enter(&level[0], 0)
	for ; len(level) > 0; r.Depth++ {
		var following []state
		for i := range level {
			id := uint32(len(x.begins))
			x.begins = append(x.begins, uint32(len(x.next)))
			broken := ""
			m.emit = func(_ step, n *state) {
				if broken != "" {
					return
				}
				before := len(x.hashes)
				x.next = append(x.next, x.enter(n, id))
				if m.broken != "" {
					broken = m.broken
					return
				}
				if len(x.hashes) > before {
					following = append(following, *n)
				}
			}
			m.steps(&level[i])
			if broken != "" {
				return x.fill(r, broken, x.next[len(x.next)-1]), true
			}
		}
		if len(x.hashes) > limit {
			return x.fill(r, "", 0), false
		}
		level = following
	}
	if id, ok := x.stuck(); ok {
		return x.fill(r, stuck, id), true
	}
	return x.fill(r, "", 0), true
}

// enter makes the state canonical, checks it, and returns its number.
func (x *explorer) enter(s *state, parent uint32) uint32 {
	x.m.simplify(s)
	x.m.swapRelays(s)
	x.m.check(s)
	h := s.hash()
	id, known := x.ids[h]
	if !known {
		id = uint32(len(x.hashes))
		x.ids[h] = id
		x.hashes = append(x.hashes, h)
		x.parent = append(x.parent, parent)
		x.done = append(x.done, x.m.finished(s))
	}
	return id
}

func (x *explorer) fill(r Result, broken string, at uint32) Result {
	r.States, r.Steps, r.Broken = len(x.hashes), len(x.next), broken
	if broken != "" {
		r.Trace = x.trace(at)
	}
	return r
}

// stuck returns a state from which no good end can be reached any more, one of
// those that are the fewest steps away.
func (x *explorer) stuck() (uint32, bool) {
	// Backwards over the steps, from all good ends.
	count := make([]uint32, len(x.hashes)+1)
	for _, to := range x.next {
		count[to+1]++
	}
	for i := 1; i < len(count); i++ {
		count[i] += count[i-1]
	}
	from := make([]uint32, len(x.next))
	fill := append([]uint32(nil), count...)
	for id := range x.begins {
		for _, to := range x.following(id) {
			from[fill[to]] = uint32(id)
			fill[to]++
		}
	}
	good := append([]bool(nil), x.done...)
	var open []uint32
	for id, done := range x.done {
		if done {
			open = append(open, uint32(id))
		}
	}
	for len(open) > 0 {
		to := open[len(open)-1]
		open = open[:len(open)-1]
		for _, id := range from[count[to]:count[to+1]] {
			if !good[id] {
				good[id] = true
				open = append(open, id)
			}
		}
	}
	for id, ok := range good {
		if !ok {
			return uint32(id), true
		}
	}
	return 0, false
}

func (x *explorer) following(id int) []uint32 {
	end := len(x.next)
	if id+1 < len(x.begins) {
		end = int(x.begins[id+1])
	}
	return x.next[x.begins[id]:end]
}

// trace tells a shortest way to a state. It goes the way again without
// exchanging relays, so that each keeps its name.
func (x *explorer) trace(to uint32) string {
	var way []uint32
	for id := to; id != 0; id = x.parent[id] {
		way = append(way, id)
	}
	at := x.m.start()
	var text strings.Builder
	before := ""
	for i := len(way) - 1; i >= 0; i-- {
		var did step
		var then state
		found := false
		x.m.broken = ""
		x.m.emit = func(st step, n *state) {
			if found {
				return
			}
			x.m.simplify(n)
			canonical := *n
			x.m.swapRelays(&canonical)
			if canonical.hash() == x.hashes[way[i]] {
				did, then, found = st, *n, true
			}
		}
		x.m.steps(&at)
		if !found {
			return text.String() + lost
		}
		fmt.Fprintf(&text, "%3d. %s\n", len(way)-i, did.text(x.m, &then))
		if now := x.m.describe(&then); now != before {
			for line := range strings.Lines(now) {
				if !strings.Contains(before, line) {
					text.WriteString("        " + line)
				}
			}
			before = now
		}
		at = then
	}
	return text.String()
}
