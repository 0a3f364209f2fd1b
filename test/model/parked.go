package model

// This file is store/pgstore's parked messages.

// park writes the outcomes that concern parked, then decides for each key that
// was touched which of its blocked messages are due.
func (m *model) park(s *state, outcomes *list) {
	var keys uint8
	for _, o := range outcomes.all() {
		if o.state == failed && !m.Hold {
			s.excused |= only(o.seq)
		}
	}
	for _, fromLog := range []bool{true, false} {
		for _, o := range outcomes.all() {
			if o.parked == fromLog || !o.parked && o.state == sent {
				continue
			}
			keys |= 1 << m.key(s, o.seq)
			m.parkOne(s, o)
		}
	}
	if m.is(PromotedWhenSent) {
		keys = 0
		for _, o := range outcomes.all() {
			if o.parked && o.state == sent {
				keys |= 1 << m.key(s, o.seq)
			}
		}
	}
	m.order(s, keys)
}

// parkOne writes one row. What an operator has changed while it was in hand
// stays so, unless it was sent.
func (m *model) parkOne(s *state, o entry) {
	row := s.parked.find(o.seq)
	switch {
	case o.state == sent:
		if row != nil {
			s.parked.remove(s.parked.index(o.seq, row.state))
		}
	case row == nil:
		if !m.is(NotParked) {
			s.parked.add(entry{seq: o.seq, state: o.state, closes: o.closes})
		}
	case o.heard:
		row.closes = false
		row.due = row.due && row.state != failed && row.state != discarded
	case row.state == discarded:
		row.closes, row.due = o.closes, o.closes
	default:
		row.state, row.closes, row.due = o.state, o.closes, false
	}
}

// order is pgstore's demote and promote: blocked messages that were due wait
// again when an earlier one is in their way, and of each key that nothing closes
// any more the first blocked ones become due.
func (m *model) order(s *state, keys uint8) {
	for key := uint8(1); key <= maxKeys; key++ {
		if keys&(1<<key) == 0 {
			continue
		}
		closing := false
		for _, p := range s.parked.all() {
			closing = closing || m.key(s, p.seq) == key && p.closes && (p.state == retrying || p.state == failed && !p.due)
		}
		if closing && !m.is(NeverDemoted) {
			m.mark(s, key, 2*m.MaxPromoted, false)
		}
		if !closing || m.is(PromotedTooEarly) {
			m.mark(s, key, m.MaxPromoted, true)
		}
	}
}

// mark makes the first blocked messages of a key due, or not.
func (m *model) mark(s *state, key uint8, most int, due bool) {
	for j := range s.parked.all() {
		p := &s.parked.of[j]
		if m.is(ParkedBeforeOrder) && due {
			p = &s.parked.of[int(s.parked.n)-1-j]
		}
		if most > 0 && p.state == blocked && m.key(s, p.seq) == key {
			p.due = due
			most--
		}
	}
}

// dueRows are parked messages whose time has come, but for those handed out.
func (m *model) dueRows(s *state, l *lease) (out set) {
	for _, p := range s.parked.all() {
		if p.due && (!l.parkedOut.has(p.seq) || m.is(HandedOutAgain)) {
			out |= only(p.seq)
		}
	}
	return out
}

// firstParked is the one of the numbers that arrived first.
func (m *model) firstParked(s *state, rows set) set {
	for _, p := range s.parked.all() {
		if rows.has(p.seq) {
			return only(p.seq)
		}
	}
	return 0
}

// givesBack reports whether a settle under way gives parked messages back as
// blocked: until it has returned they count as handed out, while what comes
// behind them may be due.
func (m *model) givesBack(st *settling) bool {
	for _, o := range st.outcomes.all() {
		if o.parked && o.state == blocked && !m.is(GivenBackOvertaken) {
			return true
		}
	}
	return false
}
