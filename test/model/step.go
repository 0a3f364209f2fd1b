package model

import (
	"fmt"
	"strings"
)

// step is what happened between two states.
type step struct {
	act    act
	who    uint8 // a writer or a relay, counted from 0
	number uint8
	call   statement
}

type act uint8

const (
	actBegin act = iota
	actGetsID
	actNextval
	actCommit
	actRollback

	actPoll
	actReadPage
	actStepPass
	actCut
	actDue
	actReceives
	actAskLocks
	actFenced

	actLoads
	actAcquire
	actTakes
	actSettle
	actSettleWaits
	actSettleCommits
	actSettleAborts
	actSettleFenced
	actSettled
	actClose

	actPublish
	actAck
	actLostAnswer
	actAway
	actRefuses
	actFails
	actArrivesLate

	actCrash
	actStop
	actRunsOut
	actComesDue
	actRetry
	actRelease
	actDiscard
)

// Of each step, its text: %w is the writer, %r the relay, %n the number.
var texts = [...]string{
	actBegin:    "%w begins, locks its keys and gets an id",
	actGetsID:   "%w gets an id",
	actNextval:  "%w enqueues: nextval gives number %n",
	actCommit:   "%w commits",
	actRollback: "%w rolls back",

	actPoll:     "%r polls: the tail is %n",
	actReadPage: "%r readPage: the statement is executed",
	actStepPass: "%r stepPass: the statement is executed",
	actCut:      "%r reads: the statement is executed, and its rows are too large: it stops after %n",
	actDue:      "%r Due: the statement is executed",
	actReceives: "%r deals with what it returned",
	actAskLocks: "%r askLocks: nobody below the fence writes to the log",
	actFenced:   "%r finds no mark of its own: fenced",

	actLoads:         "%r loads the state (and has not taken the lease)",
	actAcquire:       "%r Acquire: updates the cursor's row",
	actTakes:         "%r Acquire: commits, the lease is its own",
	actSettle:        "%r Settle: the cursor's row is updated",
	actSettleWaits:   "%r Settle: waits for the cursor's row",
	actSettleCommits: "%r Settle: the server commits it",
	actSettleAborts:  "%r Settle: the server aborts it",
	actSettleFenced:  "%r Settle: fenced",
	actSettled:       "%r Settle returns",
	actClose:         "%r Close: gives the lease up, exit code 0",

	actPublish:     "%r publishes %n",
	actAck:         "the broker acknowledges %n to %r",
	actLostAnswer:  "the broker gets %n, its answer to %r is lost",
	actAway:        "%n of %r does not reach the broker in time",
	actRefuses:     "the broker refuses %n of %r, to be tried again",
	actFails:       "the broker refuses %n of %r for good",
	actArrivesLate: "%n arrives late, from a relay that is gone",

	actCrash:    "%r is killed",
	actStop:     "%r is told to stop",
	actRunsOut:  "the lease of %r runs out",
	actComesDue: "the retry of %n comes due",
	actRetry:    "the operator retries %n",
	actRelease:  "the operator releases the key of %n",
	actDiscard:  "the operator discards %n",
}

func (st step) text(m *model, s *state) string {
	number := fmt.Sprint(st.number)
	if st.number > 0 && st.number <= s.last && s.log[st.number-1].writer != 0 {
		number = m.name(s, st.number)
	}
	return strings.NewReplacer("%w", fmt.Sprintf("writer %d", st.who+1), "%r", "relay "+string(rune('A'+st.who)), "%n", number).Replace(texts[st.act])
}

// name is a number with its key.
func (m *model) name(s *state, n uint8) string {
	if key := m.key(s, n); key != 0 {
		return fmt.Sprintf("%d (key %c)", n, 'x'+rune(key-1))
	}
	return fmt.Sprint(n)
}

func (s set) String() string {
	var parts []string
	s.each(func(n uint8) { parts = append(parts, fmt.Sprint(n)) })
	return "{" + strings.Join(parts, " ") + "}"
}

var states = map[what]string{waiting: "waiting", publishing: "publishing", releasing: "waits for its outcome's commit",
	sent: "sent", retrying: "retrying", blocked: "blocked", failed: "failed", discarded: "discarded"}

func (l *list) String() string {
	var parts []string
	for _, e := range l.all() {
		text := fmt.Sprintf("%d %s", e.seq, states[e.state])
		if e.due {
			text += ", due"
		}
		if e.free {
			text += ", without a place"
		}
		parts = append(parts, text)
	}
	return "[" + strings.Join(parts, "; ") + "]"
}

// describe tells what there is, one subject a line.
func (m *model) describe(s *state) string {
	var b strings.Builder
	holder := "nobody"
	if s.cursor.token != 0 {
		holder = "relay " + string(rune('A'+s.cursor.token-1))
		if s.cursor.expired {
			holder += ", expired"
		}
	}
	fmt.Fprintf(&b, "cursor: pos %d, unsettled %v, lease of %s\n", s.cursor.pos, s.cursor.unsettled, holder)
	if s.parked.n > 0 {
		fmt.Fprintf(&b, "parked: %v\n", &s.parked)
	}
	for i := range s.relays[:m.Relays] {
		l := &s.relays[i]
		name := "relay " + string(rune('A'+i))
		if l.call.kind != none {
			fmt.Fprintf(&b, "%s: the statement saw %v%s\n", name, l.call.found, m.snapshotText(s, l.call.seen))
		}
		if l.phase == working || l.phase == stopping {
			fmt.Fprintf(&b, "%s: pos %d, held %v", name, l.pos, l.held)
			for _, g := range l.groups[:l.ngroups] {
				fmt.Fprintf(&b, ", missing %v%s", g.numbers, fenceText(&g))
			}
			if l.pass.on {
				fmt.Fprintf(&b, ", a pass has %v left and page %v waits", l.pass.left, l.pass.rows)
			}
			b.WriteString("\n")
		}
		if l.hand.n+l.outcomes.n > 0 {
			fmt.Fprintf(&b, "%s: in hand %v, outcomes %v\n", name, &l.hand, &l.outcomes)
		}
	}
	if s.arrived != 0 {
		fmt.Fprintf(&b, "the broker has %v\n", s.arrived)
	}
	return b.String()
}

func fenceText(g *group) string {
	switch {
	case g.orphan:
		return " (by the locks nobody's)"
	case g.fence != 0:
		return " (fenced)"
	}
	return ""
}

// snapshotText names the writers that a snapshot shows as unfinished.
func (m *model) snapshotText(s *state, seen snapshot) string {
	if seen <= worth {
		return ""
	}
	var parts []string
	for i := range m.Writers {
		w := &s.writers[i]
		if w.stage != open || !seen.unfinished(w.xid) {
			continue
		}
		text := fmt.Sprintf("writer %d is open", i+1)
		if w.xid >= seen.xmax() {
			text += " (not listed)"
		}
		parts = append(parts, text)
	}
	if parts == nil {
		return ""
	}
	return "; in its snapshot " + strings.Join(parts, ", ")
}
