package model

// This file is source/poll: how a lease's Receive reads the log.

// dead reports whether the numbers that a statement with this snapshot did not
// find can never appear.
func (m *model) dead(g *group, seen snapshot) bool {
	if m.is(NoFence) {
		return true
	}
	if g.fence == 0 {
		return false
	}
	open := seen.openBelow(g.fence)
	if m.is(OnlyXip) {
		open = seen.listedBelow(g.fence)
	}
	return !open || g.orphan
}

// gaps are all missing numbers up to the position.
func (l *lease) gaps() (all set) {
	for _, g := range l.groups[:l.ngroups] {
		all |= g.numbers
	}
	return all
}

func (l *lease) unprobed() bool {
	for _, g := range l.groups[:l.ngroups] {
		if g.seen == 0 {
			return true
		}
	}
	return false
}

func (l *lease) addGroup(numbers set, seen snapshot) {
	if numbers == 0 {
		return
	}
	l.groups[l.ngroups] = group{numbers: numbers, seen: seen}
	l.ngroups++
}

func (l *lease) found(numbers set) {
	for i := range l.groups[:l.ngroups] {
		l.groups[i].numbers &^= numbers
	}
}

// probed takes note that a statement with this snapshot looked for every number
// and that what it found was removed.
func (m *model) probed(l *lease, seen snapshot) {
	kept := l.groups[:0]
	for _, g := range l.groups[:l.ngroups] {
		if g.numbers == 0 || m.dead(&g, seen) {
			continue
		}
		g.seen = m.keep(seen)
		kept = append(kept, g)
	}
	l.setGroups(kept)
}

func (l *lease) setGroups(groups []group) {
	clear(l.groups[len(groups):])
	l.ngroups = uint8(len(groups))
}

// keep is a snapshot as a group keeps it.
func (m *model) keep(seen snapshot) snapshot {
	if m.passes() {
		return seen
	}
	return probed
}

func (m *model) worthProbing(l *lease, seen snapshot) bool {
	for i := range l.groups[:l.ngroups] {
		g := &l.groups[i]
		if g.seen == 0 || m.dead(g, seen) || g.seen.finishedSince(seen, g.fence) {
			return true
		}
	}
	return false
}

// receiveSteps are what Receive may do next.
func (m *model) receiveSteps(s *state, i int) {
	l := &s.relays[i]
	if l.phase != working {
		return
	}
	who := uint8(i)
	if l.call.kind != none {
		n := *s
		m.answer(&n, i)
		m.emit(step{act: actReceives, who: who, call: l.call.kind}, &n)
		return
	}
	ours := m.holds(s, i)
	if l.pass.on || l.unprobed() {
		n := *s
		m.stepPass(&n, i)
		cut := n
		m.statement(&n, i, actStepPass, ours)
		m.cutSteps(&cut, i, ours)
		return
	}
	if rows := m.dueRows(s, l); (rows != 0 || !ours) && !m.givesBack(&l.settle) {
		n := *s
		n.relays[i].call = call{kind: due, found: rows}
		m.statement(&n, i, actDue, ours)
		if rows.len() > 1 { // or only the first, when there is room for no more
			n := *s
			n.relays[i].call = call{kind: due, found: m.firstParked(s, rows)}
			m.statement(&n, i, actDue, ours)
		}
	}
	if l.pos < l.tail || l.ngroups > 0 {
		n := *s
		m.readPage(&n, i)
		cut := n
		m.statement(&n, i, actReadPage, ours)
		m.cutSteps(&cut, i, ours)
	}
	if tail := m.tail(s); tail != l.tail {
		n := *s
		n.relays[i].tail = tail
		m.emit(step{act: actPoll, who: who, number: tail}, &n)
	}
	m.askLocks(s, i)
}

// holds reports whether the lease is still the relay's: every read looks for its
// mark.
func (m *model) holds(s *state, i int) bool { return int(s.cursor.token) == i+1 }

// statement ends a step that read from the log: a relay whose mark is another's
// learns that it is fenced.
func (m *model) statement(n *state, i int, act act, ours bool) {
	if !ours {
		m.lose(n, i)
		m.emit(step{act: actFenced, who: uint8(i)}, n)
		return
	}
	m.emit(step{act: act, who: uint8(i)}, n)
}

// readPage reads the next rows, and with them the missing numbers while those
// are few.
func (m *model) readPage(s *state, i int) {
	l := &s.relays[i]
	there := m.committed(s)
	found := (there &^ upTo(l.pos)).lowest(m.PageSize)
	if m.inline(l) {
		found |= there & l.gaps()
	}
	l.call = call{kind: page, found: found, seen: s.snapshot()}
}

// cutSteps are the same read stopped after each of its rows but the last.
func (m *model) cutSteps(s *state, i int, ours bool) {
	found := s.relays[i].call.found
	for k := 1; k < found.len() && ours && m.may(s, cuts); k++ {
		n := *s
		n.spent[cuts]++
		n.relays[i].call.found, n.relays[i].call.cut = found.lowest(k), true
		m.emit(step{act: actCut, who: uint8(i), number: n.relays[i].call.found.lastOf()}, &n)
	}
}

func (m *model) inline(l *lease) bool { return l.gaps().len() <= m.InlineGaps }

// stepPass runs one statement of the pass, of many short ranges or of part of a
// long one.
func (m *model) stepPass(s *state, i int) {
	l := &s.relays[i]
	if !l.pass.on {
		l.pass = pass{on: true, left: l.gaps(), full: true}
	}
	numbers, limit := m.nextOfPass(l.pass.left)
	l.call = call{kind: passing, found: (numbers & m.committed(s)).lowest(limit), seen: s.snapshot()}
}

// nextOfPass is what one statement of a pass looks for, and how many rows it
// returns at most.
func (m *model) nextOfPass(left set) (numbers set, limit int) {
	if first := firstRange(left); first.len() > m.PageSize {
		return first, m.PageSize
	}
	for left != 0 {
		r := firstRange(left)
		if numbers.len()+r.len() > m.PageSize {
			break
		}
		numbers |= r
		left &^= r
	}
	return numbers, maxNumbers
}

// firstRange is the first numbers of the set that follow each other.
func firstRange(s set) (r set) {
	if s == 0 {
		return 0
	}
	for n := s.first(); n <= maxNumbers && s.has(n); n++ {
		r |= only(n)
	}
	return r
}

// answer deals with what a statement returned.
func (m *model) answer(s *state, i int) {
	l := &s.relays[i]
	c := l.call
	l.call = call{}
	switch c.kind {
	case page:
		m.answerPage(s, i, c)
	case passing:
		m.answerPass(s, i, c)
	case due:
		m.answerDue(s, i, c)
	}
}

func (m *model) answerPage(s *state, i int, c call) {
	l := &s.relays[i]
	inline := m.inline(l)
	late, fresh := c.found&upTo(l.pos), c.found&^upTo(l.pos)
	decides := c.seen
	if m.is(OlderSnapshot) {
		if l.before != 0 {
			decides = l.before
		}
		l.before = c.seen
	}
	if inline {
		l.found(late)
		if c.cut && fresh == 0 && !m.is(CutIsProbed) {
			m.handOut(s, i, late, c)
			return // not all of them were looked for
		}
		m.probed(l, c.seen)
		if !m.is(LateAfterFresh) {
			m.handOut(s, i, late, c)
		}
	}
	full := c.cut || fresh.len() == m.PageSize
	if !inline && m.worthProbing(l, decides) {
		if m.is(PageGapsInPass) {
			end := l.end(fresh, full)
			l.addGroup(upTo(end)&^upTo(l.pos)&^fresh, m.keep(c.seen))
		}
		if m.is(PageBeforePass) {
			m.advance(s, i, fresh, full, c)
			fresh, full = 0, true
		}
		l.pass = pass{on: true, left: l.gaps(), rows: fresh, full: full, seen: m.keep(c.seen)}
		return
	}
	m.advance(s, i, fresh, full, c)
	if m.is(LateAfterFresh) {
		m.handOut(s, i, late, c)
	}
}

func (m *model) answerPass(s *state, i int, c call) {
	l := &s.relays[i]
	p := &l.pass
	if p.first == 0 {
		p.first = c.seen
	}
	numbers, limit := m.nextOfPass(p.left)
	switch {
	case c.cut:
		p.left &^= upTo(c.found.lastOf())
	case c.found.len() == limit: // the range goes on
		p.left &^= numbers & upTo(c.found.lastOf())
	default:
		p.left &^= numbers
	}
	rows := c.found
	if !m.is(PassHandsOutAll) {
		rows &= m.visibleIn(s, p.first)
	}
	l.found(rows)
	m.handOut(s, i, rows, c)
	if p.left == 0 {
		m.endPass(s, i, c)
	}
}

func (s set) lastOf() (n uint8) {
	s.each(func(m uint8) { n = m })
	return n
}

// endPass counts everything as looked for at the first snapshot, and lets the
// page that waited go.
func (m *model) endPass(s *state, i int, c call) {
	l := &s.relays[i]
	p := l.pass
	l.pass = pass{}
	first := p.first
	if m.is(PassSeenLast) {
		first = c.seen
	}
	m.probed(l, first)
	if m.is(PageGapsInPass) {
		// They are groups already.
		m.handOut(s, i, p.rows, c)
		l.pos = l.end(p.rows, p.full)
		return
	}
	m.advance(s, i, p.rows, p.full, call{seen: p.seen, stale: c.stale})
}

// end is the position after a page of these rows.
func (l *lease) end(rows set, full bool) uint8 {
	end := max(l.pos, rows.lastOf())
	if !full {
		end = max(end, l.tail)
	}
	return end
}

// advance hands the rows of the page out and moves the position past them and,
// if the page was not full, to the tail. What is not among the rows is missing.
func (m *model) advance(s *state, i int, rows set, full bool, c call) {
	l := &s.relays[i]
	end := l.end(rows, full)
	missing := upTo(end) &^ upTo(l.pos) &^ rows
	l.pos = end
	if !m.is(GapsForgotten) {
		l.addGroup(missing, m.keep(c.seen))
	}
	m.handOut(s, i, rows, c)
}

// handOut puts rows of the log in line; the session takes them in at once.
func (m *model) handOut(s *state, i int, rows set, c call) {
	l := &s.relays[i]
	rows.each(func(n uint8) {
		l.held |= only(n)
		m.place(s, i, entry{seq: n}, c.stale)
	})
}

// askLocks gives up waiting for transactions that never wrote to the log. A
// writer holds the lock of its INSERT from before it draws its first number.
func (m *model) askLocks(s *state, i int) {
	l := &s.relays[i]
	n := *s
	changed := false
	for j := range n.relays[i].groups[:l.ngroups] {
		g := &n.relays[i].groups[j]
		if g.fence == 0 || g.orphan || m.ownerOpen(s, g.fence) {
			continue
		}
		g.orphan, changed = true, true
	}
	if !changed {
		return
	}
	if m.is(LocksDecide) {
		kept := n.relays[i].groups[:0]
		for _, g := range n.relays[i].groups[:l.ngroups] {
			if !g.orphan {
				kept = append(kept, g)
			}
		}
		n.relays[i].setGroups(kept)
	}
	m.emit(step{act: actAskLocks, who: uint8(i)}, &n)
}

func (m *model) ownerOpen(s *state, fence uint8) bool {
	if m.is(LocksForgetPrepared) {
		return false
	}
	for i := range s.writers {
		if w := &s.writers[i]; w.stage == open && w.drawn > 0 && w.xid < fence {
			return true
		}
	}
	return false
}
