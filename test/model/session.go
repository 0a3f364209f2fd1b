package model

// This file is relay: the gate per key, publishing, and the broker.

// place decides what happens with a delivery: it becomes ready, waits behind its
// key's head, is parked behind what is parked of its key, or has its outcome at
// once.
func (m *model) place(s *state, i int, e entry, staleCall uint8) {
	l := &s.relays[i]
	key := m.key(s, e.seq)
	switch {
	case e.heard:
		m.record(s, i, e, e.state)
	case key != 0 && m.mustWait(l, e, key, staleCall):
		m.record(s, i, e, blocked)
	default:
		e.state = waiting
		l.hand.add(e)
		if m.Quick {
			m.publishAll(s, i)
		}
	}
}

// mustWait reports whether parked messages stand in the delivery's way.
func (m *model) mustWait(l *lease, e entry, key, staleCall uint8) bool {
	if l.closed[key-1] == 0 || e.free {
		return false
	}
	stale := (l.stale|staleCall)&(1<<key) != 0 && !m.is(StaleGoesOn)
	return !e.closes || stale && e.seq != l.refused[key-1]
}

// closes reports whether a message stands in its key's way with this outcome.
func (m *model) closes(key uint8, e entry, state what) bool {
	if key == 0 || e.free || e.heard {
		return false
	}
	return state == retrying || state == blocked && !m.is(OnlyHeadsClose) || state == failed && m.Hold && !m.is(HoldDoesNot)
}

// record notes an outcome for the next Settle, and what it does to the key.
func (m *model) record(s *state, i int, e entry, state what) (closes bool) {
	l := &s.relays[i]
	key, counted := m.key(s, e.seq), e.closes
	closes = m.closes(key, e, state)
	e.state, e.closes = state, closes
	l.outcomes.add(e)
	switch {
	case closes:
		if !counted {
			l.closed[key-1]++
		}
		if state != blocked {
			l.refused[key-1] = e.seq
			l.stale |= 1 << key
			l.refusals |= 1 << key
		}
	case counted && l.closed[key-1] > 0:
		if l.closed[key-1]--; l.closed[key-1] == 0 { // what was known of it is forgotten
			for _, keys := range []*uint8{&l.stale, &l.refusals, &l.settle.refusals, &l.call.stale} {
				*keys &^= 1 << key
			}
		}
	}
	return closes
}

// refuse ends an item that was not sent and whose outcome decides about its
// followers.
func (m *model) refuse(s *state, i, j int, state what) {
	l := &s.relays[i]
	e := l.hand.of[j]
	key := m.key(s, e.seq)
	if !m.record(s, i, e, state) {
		if key != 0 && !m.is(FollowerTooEarly) {
			l.hand.of[j].state = releasing // its followers go on once this is committed
		} else {
			l.hand.remove(j)
		}
		return
	}
	l.hand.remove(j)
	if m.is(FollowersGoOn) {
		return
	}
	for j := 0; j < int(l.hand.n); {
		f := l.hand.of[j]
		if f.state != waiting || f.free || m.key(s, f.seq) != key {
			j++
			continue
		}
		l.hand.remove(j)
		m.record(s, i, f, blocked)
	}
}

// committedOutcomes lets what waited for outcomes to be committed go on. Of a key
// with a refusal among them, what a statement under way returns may come too
// early.
func (m *model) committedOutcomes(l *lease, st *settling) {
	for _, o := range st.outcomes.all() {
		for j, e := range l.hand.all() {
			if e.seq == o.seq && e.state == releasing && e.parked == o.parked && e.free == o.free && o.state != sent && o.state != blocked {
				l.hand.remove(j)
				break
			}
		}
	}
	l.stale &^= st.refusals
	if l.call.kind != none {
		l.call.stale |= st.refusals
	}
}

// answerDue takes parked messages in, in order of arrival.
func (m *model) answerDue(s *state, i int, c call) {
	if c.void {
		return
	}
	l := &s.relays[i]
	l.parkedOut |= c.found
	for _, p := range s.parked.all() {
		if c.found.has(p.seq) {
			m.place(s, i, delivery(p), c.stale)
		}
	}
}

// delivery is a row of parked as it is handed out.
func delivery(p entry) entry {
	return entry{seq: p.seq, state: p.state, parked: true, closes: p.closes, free: !p.closes, heard: p.state == failed || p.state == discarded}
}

func (l *lease) publishing() bool {
	for _, e := range l.hand.all() {
		if e.state == publishing {
			return true
		}
	}
	return false
}

// mayPublish reports whether an item is ready: at most one message of a key is
// in flight, and the next goes once that has its outcome.
func (m *model) mayPublish(s *state, l *lease, j int) bool {
	e := &l.hand.of[j]
	if e.state != waiting || l.phase != working || !l.fresh && !m.is(DeadlineUnchecked) {
		return false
	}
	key := m.key(s, e.seq)
	if key == 0 {
		return true
	}
	for _, before := range l.hand.all()[:j] {
		if m.key(s, before.seq) == key && before.free == e.free && !m.is(FollowersDoNotWait) {
			return false
		}
	}
	return true
}

// publishAll is for quick instances.
func (m *model) publishAll(s *state, i int) {
	l := &s.relays[i]
	for j := 0; j < int(l.hand.n); {
		if !m.mayPublish(s, l, j) {
			j++
			continue
		}
		m.asked(s, i, l.hand.of[j].seq)
		m.acknowledge(s, i, j)
		j = 0
	}
}

// publishSteps are what the relay and the broker may do next.
func (m *model) publishSteps(s *state, i int) {
	l := &s.relays[i]
	who := uint8(i)
	for j, e := range l.hand.all() {
		if m.mayPublish(s, l, j) {
			n := *s
			n.relays[i].hand.of[j].state = publishing
			m.asked(&n, i, e.seq)
			if m.Quick {
				m.acknowledge(&n, i, j)
			}
			m.emit(step{act: actPublish, who: who, number: e.seq}, &n)
		}
		if e.state == publishing {
			m.brokerSteps(s, i, j)
		}
	}
}

func (m *model) brokerSteps(s *state, i, j int) {
	who, e := uint8(i), s.relays[i].hand.of[j]
	n := *s
	m.acknowledge(&n, i, j)
	m.emit(step{act: actAck, who: who, number: e.seq}, &n)
	if m.may(s, lostAnswers) {
		for _, arrives := range []bool{true, false} {
			n := *s
			n.spent[lostAnswers]++
			act := actAway
			if arrives {
				act = actLostAnswer
				m.arrive(&n, e.seq)
			}
			n.relays[i].hand.of[j].state = waiting
			if m.is(UnansweredIsSent) {
				n.relays[i].hand.remove(j)
				m.record(&n, i, e, sent)
			}
			m.emit(step{act: act, who: who, number: e.seq}, &n)
		}
	}
	for _, refusal := range []struct {
		trouble int
		act     act
		state   what
	}{{retryables, actRefuses, retrying}, {permanents, actFails, failed}} {
		if m.may(s, refusal.trouble) {
			n := *s
			n.spent[refusal.trouble]++
			m.refuse(&n, i, j, refusal.state)
			m.emit(step{act: refusal.act, who: who, number: e.seq}, &n)
		}
	}
}

// asked is the beginning of a publish.
func (m *model) asked(s *state, i int, seq uint8) {
	if s.relays[i].mine.has(seq) {
		m.breaks("a relay publishes a message again that was acknowledged to it")
	}
	if s.recorded(seq) && s.acked.has(seq) {
		m.breaks("a message that is recorded as sent is published again")
	}
}

// acknowledge is a publish that arrives and whose answer arrives.
func (m *model) acknowledge(s *state, i, j int) {
	l := &s.relays[i]
	e := l.hand.of[j]
	m.arrive(s, e.seq)
	s.acked |= only(e.seq)
	l.mine |= only(e.seq)
	l.hand.remove(j)
	m.record(s, i, e, sent)
}

// arrive is a delivery to the broker's consumers.
func (m *model) arrive(s *state, seq uint8) {
	if m.fate(s, seq) != committed {
		m.breaks("a message was published that is not committed")
	}
	if s.arrived.has(seq) {
		return
	}
	s.arrived |= only(seq)
	key := m.key(s, seq)
	if key == 0 || s.excused.has(seq) {
		return
	}
	for n := uint8(1); n < seq; n++ {
		if m.fate(s, n) == committed && m.key(s, n) == key && !s.arrived.has(n) && !s.excused.has(n) {
			m.breaks("first deliveries of a key are out of order")
		}
	}
}

// lose ends a session without a clean stop: what is being published may arrive
// later or never, what the server was told it may still do.
func (m *model) lose(s *state, i int) {
	l := &s.relays[i]
	for _, e := range l.hand.all() {
		if e.state == publishing {
			s.late |= only(e.seq)
		}
	}
	was := l.settle
	*l = lease{phase: away}
	if was.at == written || was.at == queued {
		was.orphan = true
		l.settle = was
	}
}

// troubleSteps are what happens to processes, leases and messages from outside.
func (m *model) troubleSteps(s *state) {
	for i := range s.relays[:m.Relays] {
		l := &s.relays[i]
		if l.phase != working && l.phase != stopping && l.phase != taking {
			continue
		}
		if m.may(s, crashes) {
			n := *s
			n.spent[crashes]++
			if l.phase == taking {
				n.finish(l.settle.xid)
			}
			m.lose(&n, i)
			m.emit(step{act: actCrash, who: uint8(i)}, &n)
		}
		if l.phase == working && m.may(s, stops) {
			n := *s
			n.spent[stops]++
			n.relays[i].phase = stopping
			n.relays[i].call, n.relays[i].pass = call{}, pass{}
			m.emit(step{act: actStop, who: uint8(i)}, &n)
		}
	}
	m.timeSteps(s)
	m.operatorSteps(s)
	s.late.each(func(seq uint8) {
		n := *s
		n.late &^= only(seq)
		m.arrive(&n, seq)
		m.emit(step{act: actArrivesLate, number: seq}, &n)
	})
}

// timeSteps: a lease runs out, a retry comes due.
func (m *model) timeSteps(s *state) {
	if owner := int(s.cursor.token) - 1; owner >= 0 && !s.cursor.expired {
		gone := s.relays[owner].phase == away || s.relays[owner].phase == stopped
		if gone || m.may(s, runsOut) {
			n := *s
			if !gone {
				n.spent[runsOut]++
			}
			n.cursor.expired = true
			n.relays[owner].fresh = false
			n.relays[owner].settle.ranOut = n.relays[owner].settle.at != notSettling
			m.emit(step{act: actRunsOut, who: uint8(owner)}, &n)
		}
	}
	for j, p := range s.parked.all() {
		if p.state == retrying && !p.due {
			n := *s
			n.parked.of[j].due = true
			m.emit(step{act: actComesDue, number: p.seq}, &n)
		}
	}
}

// operatorSteps: a message is to be tried again, a failed one is to let its key
// go on, a message is given up. Of the last two the lease hears when they are
// handed out to it.
func (m *model) operatorSteps(s *state) {
	if s.locked() {
		return // whoever changes rows locks the cursor's row first
	}
	for j, p := range s.parked.all() {
		if m.may(s, retries) && (p.state == failed || p.state == discarded) {
			n := *s
			n.spent[retries]++
			n.parked.of[j].state, n.parked.of[j].due = retrying, true
			m.order(&n, 1<<m.key(s, p.seq))
			m.emit(step{act: actRetry, number: p.seq}, &n)
		}
		if m.may(s, releases) && p.state == failed && p.closes && !p.due {
			n := *s
			n.spent[releases]++
			n.excused |= only(p.seq)
			n.parked.of[j].due = true
			m.order(&n, 1<<m.key(s, p.seq))
			m.emit(step{act: actRelease, number: p.seq}, &n)
		}
		if m.may(s, discards) && p.state != discarded {
			n := *s
			n.spent[discards]++
			n.excused |= only(p.seq)
			n.parked.of[j].state, n.parked.of[j].due = discarded, p.closes
			m.order(&n, 1<<m.key(s, p.seq))
			m.emit(step{act: actDiscard, number: p.seq}, &n)
		}
	}
}
