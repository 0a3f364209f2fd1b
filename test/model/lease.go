package model

// This file is store/pgstore: the cursor's row and its token.

// locked reports whether a transaction that is open has updated the cursor's
// row, so that others who want to have to wait.
func (s *state) locked() bool {
	for i := range s.relays {
		if l := &s.relays[i]; l.phase == taking || l.settle.at == written {
			return true
		}
	}
	return false
}

// leaseSteps are taking, renewing and giving up the lease.
func (m *model) leaseSteps(s *state, i int) {
	l := &s.relays[i]
	switch l.phase {
	case away, stopped:
		m.acquireSteps(s, i)
	case taking:
		n := *s
		m.takeOver(&n, i)
		m.emit(step{act: actTakes, who: uint8(i)}, &n)
	case working, stopping:
		m.settleSteps(s, i)
	}
	m.serverSteps(s, i)
	if l.phase == stopping {
		m.closeStep(s, i)
	}
}

func (m *model) acquireSteps(s *state, i int) {
	l := &s.relays[i]
	if l.settle.at != notSettling {
		return // see the package comment
	}
	free := s.cursor.token == 0 || s.cursor.expired || m.is(TakesHeldLease)
	if m.is(LoadBeforeUpdate) && !l.fresh {
		n := *s
		m.load(&n, i)
		n.relays[i].fresh = true // it has loaded
		m.emit(step{act: actLoads, who: uint8(i)}, &n)
		return
	}
	if !free || s.locked() {
		return
	}
	n := *s
	if m.Slow {
		n.relays[i].phase = taking
		n.relays[i].settle.xid = n.newID()
		m.emit(step{act: actAcquire, who: uint8(i)}, &n)
		return
	}
	n.relays[i].settle.xid = n.newID()
	m.takeOver(&n, i)
	m.emit(step{act: actTakes, who: uint8(i)}, &n)
}

// takeOver commits a takeover: of the row, and of what was loaded after it was
// locked.
func (m *model) takeOver(s *state, i int) {
	l := &s.relays[i]
	xid := l.settle.xid
	l.settle = settling{}
	if !m.is(LoadBeforeUpdate) {
		m.load(s, i)
	}
	s.cursor.token, s.cursor.expired = uint8(i+1), false
	l.phase, l.fresh = working, true
	s.finish(xid)
	if m.is(LoadedIsProbed) && l.ngroups > 0 {
		l.groups[0].seen = m.keep(s.snapshot())
	}
}

// load reads the state. What was unsettled is missing until it is read again.
func (m *model) load(s *state, i int) {
	l := &s.relays[i]
	*l = lease{phase: l.phase, pos: s.cursor.pos}
	if !m.is(BarePosition) {
		l.addGroup(s.cursor.unsettled, 0)
	}

	var keys uint8
	for j := range s.parked.all() {
		p := &s.parked.of[j]
		if !m.Hold && p.state == failed && p.closes { // letGo
			p.closes, p.due = false, false
		}
		if key := m.key(s, p.seq); p.closes {
			l.closed[key-1]++
			keys |= 1 << key
		}
	}
	m.order(s, keys)
	if m.is(ClosedNotLoaded) {
		l.closed = [maxKeys]uint8{}
	}
}

// settleSteps begin a Settle if it would change anything.
func (m *model) settleSteps(s *state, i int) {
	l := &s.relays[i]
	if l.settle.at != notSettling {
		return
	}
	n := *s
	x := &n.relays[i]
	useful := m.beginSettle(&n, i)
	if !useful {
		return
	}
	switch {
	case s.locked():
		if !m.is(FenceBySubquery) {
			return // it waits, and goes on as if it had begun then
		}
		x.settle.at, x.settle.passed = queued, m.holds(s, i)
		m.emit(step{act: actSettleWaits, who: uint8(i)}, &n)
	default:
		m.fence(&n, i)
	}
}

// beginSettle takes what is to be written from the memory of the relay.
func (m *model) beginSettle(s *state, i int) (useful bool) {
	l := &s.relays[i]
	settles := l.outcomes.settledOfLog()
	if m.is(UnsettledWhenBlocked) {
		settles = l.outcomes.sentOfLog()
	}
	st := settling{pos: l.pos, unsettled: l.held&^settles | l.gaps(), outcomes: l.outcomes, refusals: l.refusals}
	if m.is(SentWhenAsked) {
		for _, e := range l.hand.all() {
			if e.state == publishing && !e.parked {
				st.unsettled &^= only(e.seq)
			}
		}
	}
	if m.is(HeldForgotten) {
		st.unsettled = l.gaps()
	}
	useful = l.outcomes.n > 0 || !l.fresh || st.pos != s.cursor.pos || st.unsettled != s.cursor.unsettled
	for j := range l.groups[:l.ngroups] {
		if g := &l.groups[j]; g.fence == 0 {
			g.known, useful = true, true
		}
	}
	l.outcomes, l.refusals = list{}, 0
	l.settle = st
	l.call.void = l.call.kind == due && (l.call.void || m.givesBack(&st))
	return useful
}

// settledOfLog are the numbers of the log that have an outcome.
func (l *list) settledOfLog() (out set) {
	for _, e := range l.all() {
		if !e.parked {
			out |= only(e.seq)
		}
	}
	return out
}

func (l *list) sentOfLog() (out set) {
	for _, e := range l.all() {
		if !e.parked && e.state == sent {
			out |= only(e.seq)
		}
	}
	return out
}

// fence updates the cursor's row where it still has the token, with which every
// settling transaction starts.
func (m *model) fence(s *state, i int) {
	l := &s.relays[i]
	st := &l.settle
	if !m.holds(s, i) && !st.passed && !m.is(SettleWithoutToken) {
		st.at = notSettling
		if l.phase == working || l.phase == stopping {
			m.lose(s, i)
		}
		m.emit(step{act: actSettleFenced, who: uint8(i)}, s)
		return
	}
	st.xid = s.newID()
	st.at = written
	if !m.Slow {
		m.commitSettle(s, i)
	}
	m.emit(step{act: actSettle, who: uint8(i)}, s)
}

// serverSteps are what PostgreSQL does about a settle that was sent.
func (m *model) serverSteps(s *state, i int) {
	st := &s.relays[i].settle
	switch st.at {
	case queued:
		if !s.locked() {
			n := *s
			m.fence(&n, i)
		}
	case written:
		n := *s
		m.commitSettle(&n, i)
		m.emit(step{act: actSettleCommits, who: uint8(i)}, &n)
		if st.orphan {
			n := *s
			n.finish(st.xid)
			n.relays[i].settle = settling{}
			m.emit(step{act: actSettleAborts, who: uint8(i)}, &n)
		}
	case answered:
		n := *s
		m.settled(&n, i)
		m.emit(step{act: actSettled, who: uint8(i)}, &n)
	}
}

// commitSettle makes what was settled visible.
func (m *model) commitSettle(s *state, i int) {
	if !m.holds(s, i) {
		m.breaks("a relay that lost its lease changed the state")
	}
	st := &s.relays[i].settle
	s.cursor.pos, s.cursor.unsettled = st.pos, st.unsettled
	s.cursor.expired = false
	m.park(s, &st.outcomes)
	s.finish(st.xid)
	st.at = answered
	if st.orphan {
		*st = settling{}
	}
}

// settled is Settle's return.
func (m *model) settled(s *state, i int) {
	l := &s.relays[i]
	st := l.settle
	l.settle = settling{}
	l.call.void = l.call.kind == due && (l.call.void || m.givesBack(&st))
	l.held &^= st.outcomes.settledOfLog()
	l.fresh = !st.ranOut || m.is(DeadlineFromAnswer)
	for j := range l.groups[:l.ngroups] {
		g := &l.groups[j]
		if g.fence == 0 && (g.known || m.is(FenceTooEarly)) {
			g.fence = st.xid
		}
		g.known = false
	}
	for _, o := range st.outcomes.all() {
		if o.parked {
			l.parkedOut &^= only(o.seq)
		}
	}
	m.committedOutcomes(l, &st)
}

// closeStep gives the lease up once everything is settled.
func (m *model) closeStep(s *state, i int) {
	l := &s.relays[i]
	busy := l.outcomes.n > 0 || l.settle.at != notSettling
	if m.is(StopForgets) {
		busy = false
	}
	if busy || l.publishing() || s.locked() {
		return
	}
	n := *s
	if !m.holds(s, i) {
		m.lose(&n, i)
		m.emit(step{act: actFenced, who: uint8(i)}, &n)
		return
	}
	l.mine.each(func(seq uint8) {
		if !s.recorded(seq) {
			m.breaks("a clean stop left an acknowledged message that will be sent again")
		}
	})
	xid := n.newID()
	n.finish(xid)
	n.cursor.token, n.cursor.expired = 0, false
	n.relays[i] = lease{phase: stopped}
	m.emit(step{act: actClose, who: uint8(i)}, &n)
}

// recorded reports whether the database says that the number is done: sent, or
// of no interest.
func (s *state) recorded(seq uint8) bool {
	return seq <= s.cursor.pos && !s.cursor.unsettled.has(seq) && s.parked.find(seq) == nil
}
