package relay_test

import (
	"context"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// operate is something that an operator does with messages picked blindly.
func (w *world) operate() {
	actions := []admin.Action{admin.Retry, admin.Retry, admin.Release, admin.Discard, admin.Replay}
	op := admin.Operation{Action: actions[w.draw(len(actions))], Route: "r"}
	if op.Action == admin.Replay {
		op.Shard = w.draw(w.plan.Shards)
		for seq := range int64(200) {
			if w.chance(5) {
				op.Seqs = append(op.Seqs, seq)
			}
		}
		w.change(op)
		return
	}
	for _, p := range w.store.Parked("r") {
		if !w.chance(30) {
			continue
		}
		w.mu.Lock()
		f := w.fates[string(p.Message.Payload)]
		switch {
		case op.Action == admin.Discard:
			f.discarded = true
		case op.Action == admin.Retry && !(p.State == outbox.StateFailed && p.Closes) && (f.fails || !p.Closes):
			f.late = true // its key went on without it
		}
		w.mu.Unlock()
		op.Shard, op.Seqs = p.Shard, []int64{p.Seq}
		w.change(op)
	}
}

func (w *world) change(op admin.Operation) {
	if _, err := w.store.Operate(context.Background(), op); err != nil {
		w.problem("%s: %v", op.Action, err)
	}
}

// letGo releases what failed messages hold, until nothing waits any more.
func (w *world) letGo() {
	for range 100 {
		waiting := false
		for _, p := range w.store.Parked("r") {
			switch {
			case p.State == outbox.StateFailed && p.Closes:
				w.change(admin.Operation{Action: admin.Release, Route: "r", Shard: p.Shard, Seqs: []int64{p.Seq}})
				waiting = true
			case p.State != outbox.StateFailed && p.State != outbox.StateDiscarded:
				waiting = true
			}
		}
		if !waiting {
			return
		}
		time.Sleep(5 * time.Minute)
	}
}

func (w *world) onFailure() relay.OnFailure {
	if w.plan.Hold {
		return relay.Hold
	}
	return relay.Release
}
