package model

// This file is PostgreSQL as far as the protocol needs it: transactions and
// their ids, snapshots, the sequence, and the log that applications write to.

// newID is pg_current_xact_id() of a transaction that has none yet.
func (s *state) newID() uint8 {
	xid := s.next
	if xid >= maxXid {
		panic("too many transaction ids at a time: raise maxXid")
	}
	s.next++
	return xid
}

// finish ends a transaction in the eyes of later snapshots.
func (s *state) finish(xid uint8) { s.xmax = max(s.xmax, xid+1) }

// openIDs are the ids of transactions that have not ended, as bits.
func (s *state) openIDs() uint32 {
	var ids uint32
	for i := range s.writers {
		if w := &s.writers[i]; w.stage == open {
			ids |= 1 << w.xid
		}
	}
	for i := range s.relays {
		if l := &s.relays[i]; l.phase == taking || l.settle.at == written {
			ids |= 1 << l.settle.xid
		}
	}
	return ids &^ 1
}

// snapshot is pg_current_snapshot(): running transactions at or above the
// latest finished one are not listed.
func (s *state) snapshot() snapshot {
	return newSnapshot(s.xmax, s.openIDs()&(1<<s.xmax-1))
}

// committed are the numbers of rows that a statement sees which begins now.
func (m *model) committed(s *state) set {
	var out set
	for n := uint8(1); n <= s.last; n++ {
		if m.fate(s, n) == committed {
			out |= only(n)
		}
	}
	return out
}

// fate is what became of a number's row.
func (m *model) fate(s *state, n uint8) stage {
	r := s.log[n-1]
	if r.writer == 0 {
		return idle
	}
	at := s.writers[r.writer-1].stage
	if at == committed && m.Writers[r.writer-1].Rows[r.index].Void {
		return rolledBack
	}
	return at
}

func (m *model) key(s *state, n uint8) uint8 {
	r := s.log[n-1]
	return m.Writers[r.writer-1].Rows[r.index].Key
}

func (w *Writer) keys() (bits uint8) {
	for _, r := range w.Rows {
		bits |= 1 << r.Key
	}
	return bits &^ 1
}

// tail is what pgstore.Tails says of the sequence.
func (m *model) tail(s *state) uint8 {
	if s.last == 0 && m.is(NeverCalled) {
		return 1
	}
	return s.last
}

// visibleIn are the committed rows that the snapshot sees.
func (m *model) visibleIn(s *state, seen snapshot) set {
	out := m.committed(s)
	out.each(func(n uint8) {
		if seen.unfinished(s.writers[s.log[n-1].writer-1].xid) {
			out &^= only(n)
		}
	})
	return out
}

// writersSteps are what the applications may do next.
func (m *model) writersSteps(s *state) {
	for i := range m.Writers {
		w, program := &s.writers[i], &m.Writers[i]
		switch {
		case w.stage == idle && m.mayBegin(s, i):
			n := *s
			n.writers[i].stage = open
			if !m.is(NumberBeforeID) {
				n.writers[i].xid = n.newID()
			}
			m.emit(step{act: actBegin, who: uint8(i)}, &n)
		case w.stage == open && int(w.drawn) < len(program.Rows):
			n := *s
			n.last++
			n.log[n.last-1] = row{uint8(i + 1), w.drawn}
			n.writers[i].drawn++
			m.emit(step{act: actNextval, who: uint8(i), number: n.last}, &n)
		case w.stage == open && w.xid == 0:
			n := *s
			n.writers[i].xid = n.newID()
			m.emit(step{act: actGetsID, who: uint8(i)}, &n)
		case w.stage == open && !program.Stays:
			n := *s
			n.writers[i].stage = committed
			n.finish(w.xid)
			m.emit(step{act: actCommit, who: uint8(i)}, &n)
			if m.may(s, rollbacks) && len(program.Rows) > 0 {
				n := *s
				n.spent[rollbacks]++
				n.writers[i].stage = rolledBack
				n.finish(w.xid)
				m.emit(step{act: actRollback, who: uint8(i)}, &n)
			}
		}
	}
}

// mayBegin: the keys are locked until the end. Of writers that do the same, the
// first that has not begun is the next one.
func (m *model) mayBegin(s *state, i int) bool {
	keys := m.Writers[i].keys()
	for j := range m.Writers {
		at := s.writers[j].stage
		if at == open && m.Writers[j].keys()&keys != 0 {
			return false
		}
		if j < i && at == idle && same(&m.Writers[i], &m.Writers[j]) {
			return false
		}
	}
	return true
}

func same(a, b *Writer) bool {
	if len(a.Rows) != len(b.Rows) || a.Stays != b.Stays {
		return false
	}
	for i := range a.Rows {
		if a.Rows[i] != b.Rows[i] {
			return false
		}
	}
	return true
}
