package conformance

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
)

// operateSome does what an operator could do, with any messages, while the lease
// knows nothing of it.
func (m *modelRun[Tx]) operateSome(t *rapid.T) {
	actions := []admin.Action{admin.Retry, admin.Release, admin.Discard, admin.Replay}
	action := rapid.SampledFrom(actions).Draw(t, "action")
	var seqs, want []int64
	for _, x := range slices.Concat(m.parked, m.sent) {
		if !rapid.Bool().Draw(t, "this one") {
			continue
		}
		seqs = append(seqs, x.seq)
		if m.change(x, action) {
			want = append(want, x.seq)
		}
	}
	slices.Sort(seqs)
	slices.Sort(want)
	changed := m.storeRig.operate(admin.Operation{Action: action, Route: m.route, Seqs: seqs})
	slices.Sort(changed)
	if !slices.Equal(changed, want) {
		m.t.Fatalf("%s of %v changed %v, want %v", action, seqs, changed, want)
	}
}

// change does it in the model; false if it does not apply.
func (m *modelRun[Tx]) change(x *modelMessage, action admin.Action) bool {
	parked := slices.Contains(m.parked, x)
	switch {
	case action == admin.Discard && parked && x.state != outbox.StateDiscarded:
		x.state, x.due, x.changed = outbox.StateDiscarded, false, x.closes
	case action == admin.Release && parked && x.state == outbox.StateFailed && x.closing():
		x.changed = true
	case action == admin.Retry && parked && x.state != outbox.StateBlocked:
		if x.state != outbox.StateScheduled && x.state != outbox.StatePending {
			x.state = outbox.StateRetrying
		}
		x.due, x.changed, x.attempts = true, false, 0
	case action == admin.Replay && !parked:
		m.sent = without(m.sent, x)
		m.parked = append(m.parked, x)
		x.state, x.closes, x.changed, x.due, x.attempts, x.replay = outbox.StatePending, false, false, true, 0, true
	default:
		return false
	}
	return true
}
