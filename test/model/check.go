package model

// steps emits every step that is possible in the state.
//
// While a statement's answer is under way, only its own relay goes on: what
// others do in between could as well be done before the statement or after the
// answer, since neither the answer nor what the relay makes of it depends on it.
func (m *model) steps(s *state) {
	m.broken = ""
	for i := range s.relays[:m.Relays] {
		if s.relays[i].call.kind != none && !m.plain {
			m.receiveSteps(s, i)
			m.publishSteps(s, i)
			m.leaseSteps(s, i)
			return
		}
	}
	m.writersSteps(s)
	for i := range s.relays[:m.Relays] {
		m.receiveSteps(s, i)
		m.publishSteps(s, i)
		m.leaseSteps(s, i)
	}
	m.troubleSteps(s)
}

// check looks at what must hold in every state.
func (m *model) check(s *state) {
	if s.parked.numbers()&s.cursor.unsettled != 0 {
		m.breaks("a parked message is looked for in the log, too")
	}
	m.checkCounts(s)
	for n := uint8(1); n <= s.last; n++ {
		if m.fate(s, n) != committed || !s.recorded(n) || s.acked.has(n) || s.excused.has(n) {
			continue
		}
		m.breaks("a committed message counts as sent that no broker has acknowledged")
	}
}

// checkCounts compares the gate's counts with the table, when nothing is under
// way between the two. A mistake should show by what comes of it.
func (m *model) checkCounts(s *state) {
	for i := range s.relays[:m.Relays] {
		l := &s.relays[i]
		if l.phase != working || !m.holds(s, i) || l.outcomes.n > 0 || l.settle.at != notSettling || m.Mistake != NoMistake {
			continue
		}
		var closed [maxKeys]uint8
		for _, p := range s.parked.all() {
			if p.closes {
				closed[m.key(s, p.seq)-1]++
			}
		}
		if closed != l.closed {
			m.breaks("the gate counts other messages in a key's way than there are")
		}
	}
}

// finished reports whether all is done: every committed message is sent and
// recorded so, or is parked in an end state (or behind one that holds its key),
// and no number is looked for any more.
func (m *model) finished(s *state) bool {
	for i := range m.Writers {
		if at := s.writers[i].stage; at == idle || at == open && !m.Writers[i].Stays {
			return false
		}
	}
	for _, p := range s.parked.all() {
		ended := (p.state == failed || p.state == discarded) && !p.due
		if !ended && !(p.state == blocked && m.held(s, m.key(s, p.seq))) {
			return false
		}
	}
	return s.cursor.pos == s.last && s.cursor.unsettled&^m.staying(s) == 0
}

// held reports whether a failed message holds the key.
func (m *model) held(s *state, key uint8) bool {
	for _, p := range s.parked.all() {
		if p.closes && p.state == failed && !p.due && m.key(s, p.seq) == key {
			return true
		}
	}
	return false
}

// staying are numbers of transactions that never end.
func (m *model) staying(s *state) (out set) {
	for n := uint8(1); n <= s.last; n++ {
		if w := s.log[n-1].writer; w != 0 && m.Writers[w-1].Stays {
			out |= only(n)
		}
	}
	return out
}
