package model

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
)

// simplify drops what cannot matter any more, so that states which differ in
// that alone are one.
func (m *model) simplify(s *state) {
	if m.plain {
		m.renumber(s)
		return
	}
	for i := range s.relays[:m.Relays] {
		l := &s.relays[i]
		m.simplifyGroups(s, l)
		if l.call.kind == page && !m.passes() && l.ngroups == 0 {
			l.call.seen = probed
		}
		for key := uint8(1); key <= maxKeys; key++ {
			if (l.stale|l.call.stale|l.refusals|l.settle.refusals)&(1<<key) == 0 {
				l.refused[key-1] = 0
			}
		}
		if l.pass.seen > worth {
			l.pass.seen = m.since(s, l, &group{seen: l.pass.seen})
		}
	}
	for i := range s.writers {
		w := &s.writers[i]
		if w.stage != open && w.xid != 0 && !m.remembered(s, w.xid) {
			w.xid = 0
		}
	}
	m.renumber(s)
}

// remembered reports whether some pass has to tell the writer's rows from others.
func (m *model) remembered(s *state, xid uint8) bool {
	for i := range s.relays[:m.Relays] {
		l := &s.relays[i]
		if l.pass.first != 0 && l.pass.first.unfinished(xid) || l.call.kind == passing && l.call.seen.unfinished(xid) {
			return true
		}
	}
	return false
}

// simplifyGroups makes one group of those that nothing tells apart, and one
// fence of all that have nothing to wait for any more.
func (m *model) simplifyGroups(s *state, l *lease) {
	groups := l.groups[:l.ngroups]
	for i := range groups {
		g := &groups[i]
		if g.seen > worth && !m.is(OlderSnapshot) {
			g.seen = m.since(s, l, g)
		}
		if g.fence > 1 && m.over(s, l, g.fence) {
			g.fence = 1
		}
	}
	slices.SortFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.seen, b.seen), cmp.Compare(a.fence, b.fence), compareBools(a.orphan, b.orphan), compareBools(a.known, b.known),
			cmp.Compare(a.numbers, b.numbers))
	})
	kept := groups[:0]
	for _, g := range groups {
		if n := len(kept); n > 0 {
			last := kept[n-1]
			last.numbers = g.numbers
			if last == g {
				kept[n-1].numbers |= g.numbers
				continue
			}
		}
		kept = append(kept, g)
	}
	l.setGroups(kept)
}

// since is the snapshot of a group as far as it matters: if nothing has finished
// since that could have drawn its numbers, it is as good as one that is taken
// now, and else everything that it said is known.
func (m *model) since(s *state, l *lease, g *group) snapshot {
	now, limit := s.snapshot(), g.fence
	if limit == 0 && g.known {
		limit = l.settle.xid
	}
	if g.seen.finishedSince(now, limit) {
		return worth
	}
	return now
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// over reports whether every snapshot that may decide about the fence shows all
// ids below it as finished.
func (m *model) over(s *state, l *lease, fence uint8) bool {
	for _, seen := range []snapshot{s.snapshot(), l.call.seen, l.pass.first, l.before} {
		if seen > worth && seen.openBelow(fence) {
			return false
		}
	}
	return true
}

// swapRelays puts relays, which are all alike, into an order.
func (m *model) swapRelays(s *state) {
	if m.Relays < 2 || m.plain {
		return
	}
	a, b := maphash.Comparable(seeds[0], s.relays[0]), maphash.Comparable(seeds[0], s.relays[1])
	if a < b || a == b && s.cursor.token < 2 {
		return
	}
	s.relays[0], s.relays[1] = s.relays[1], s.relays[0]
	if s.cursor.token != 0 {
		s.cursor.token = 3 - s.cursor.token
	}
}

// renumber gives the ids that still matter new numbers in the same order, so
// that states that differ in ids alone are one. With holes it keeps that there
// was some finished id between two of them.
func (m *model) renumber(s *state) {
	var used uint32
	m.ids(s, func(xid *uint8) { used |= 1 << *xid })
	m.snapshots(s, func(seen *snapshot) { used |= 1<<seen.xmax() | seen.xip() })
	used &^= 1<<2 - 1
	holes := m.holes(s)
	if used == contiguous(used) {
		return
	}
	var to [maxXid + 1]uint8
	to[1] = 1
	next, last := uint8(1), uint8(1)
	for rest := used; rest != 0; rest &= rest - 1 {
		xid := uint8(bits.TrailingZeros32(rest))
		next++
		if holes && xid > last+1 {
			next++
		}
		to[xid], last = next, xid
	}
	m.ids(s, func(xid *uint8) { *xid = to[*xid] })
	m.snapshots(s, func(seen *snapshot) {
		var xip uint32
		for rest := seen.xip(); rest != 0; rest &= rest - 1 {
			xip |= 1 << to[bits.TrailingZeros32(rest)]
		}
		*seen = newSnapshot(to[seen.xmax()], xip)
	})
}

// contiguous is as many bits as ids has, from 2 on.
func contiguous(ids uint32) uint32 { return (1<<bits.OnesCount32(ids) - 1) << 2 }

// passes reports whether there may be passes; otherwise everything is looked
// for in every read.
func (m *model) passes() bool { return m.InlineGaps < maxNumbers }

// holes: only from the first snapshot of a pass is it counted whether some id
// finished that nobody else remembers.
func (m *model) holes(s *state) bool {
	if m.is(OlderSnapshot) || m.plain {
		return true
	}
	for i := range s.relays[:m.Relays] {
		if l := &s.relays[i]; m.passes() && (l.pass.on || l.call.kind != none) {
			return true
		}
	}
	return false
}

// ids visits every id that is kept anywhere but in a snapshot.
func (m *model) ids(s *state, visit func(*uint8)) {
	visit(&s.next)
	visit(&s.xmax)
	for i := range s.writers {
		if w := &s.writers[i]; w.xid != 0 {
			visit(&w.xid)
		}
	}
	for i := range s.relays {
		l := &s.relays[i]
		if l.settle.xid != 0 {
			visit(&l.settle.xid)
		}
		for j := range l.groups[:l.ngroups] {
			if g := &l.groups[j]; g.fence != 0 {
				visit(&g.fence)
			}
		}
	}
}

// snapshots visits every snapshot that is kept.
func (m *model) snapshots(s *state, visit func(*snapshot)) {
	for i := range s.relays {
		l := &s.relays[i]
		for _, seen := range []*snapshot{&l.call.seen, &l.pass.first, &l.pass.seen, &l.before} {
			if *seen > worth {
				visit(seen)
			}
		}
		for j := range l.groups[:l.ngroups] {
			if g := &l.groups[j]; g.seen > worth {
				visit(&g.seen)
			}
		}
	}
}
