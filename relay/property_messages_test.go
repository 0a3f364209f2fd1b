package relay_test

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/outbox"
)

// fate is what a message meets, and what it has met.
type fate struct {
	key       string
	number    int
	committed bool
	scheduled bool
	retries   int  // times that it is refused before it is accepted
	fails     bool // permanently
	lostAck   bool
	discarded bool // by an operator, or nearly
	late      bool // an operator has had it tried again after its key went on
	refused   int
	lost      int
}

// write is a transaction of up to five messages on up to two keys, some of
// them without one.
func (w *world) write() {
	keys := []string{fmt.Sprint("k", w.draw(w.plan.Keys)), fmt.Sprint("k", w.draw(w.plan.Keys))}
	writer, tx, ctx := outbox.NewWriter(w.store), w.store.Begin(), context.Background()
	if err := writer.LockKeys(ctx, tx, keys...); err != nil {
		w.problem("lock: %v", err)
	}
	var msgs []outbox.Message
	var fates []*fate
	for range 1 + w.draw(5) {
		key := keys[w.draw(2)]
		if w.chance(10) {
			key = ""
		}
		f := &fate{key: key, fails: w.chance(w.plan.Fail), lostAck: w.chance(w.plan.LostAck), scheduled: w.chance(w.plan.Later)}
		if w.chance(w.plan.Retry) {
			f.retries = 1 + w.draw(3)
		}
		w.mu.Lock()
		f.number = w.next[key]
		w.next[key]++
		id := fmt.Sprint(key, "/", f.number)
		w.fates[id] = f
		w.mu.Unlock()
		m := outbox.Message{Topic: w.topic(), Key: key, Payload: []byte(id)}
		if f.scheduled {
			m.NotBefore = time.Now().Add(time.Duration(w.draw(int(5 * time.Second))))
		}
		msgs, fates = append(msgs, m), append(fates, f)
	}
	if err := writer.Enqueue(ctx, tx, msgs...); err != nil {
		w.problem("enqueue: %v", err)
	}
	w.sleep(50 * time.Millisecond)
	if w.chance(10) {
		_ = tx.Rollback()
		return
	}
	w.mu.Lock()
	for _, f := range fates {
		f.committed = true
	}
	w.mu.Unlock()
	if err := tx.Commit(); err != nil {
		w.problem("commit: %v", err)
	}
}

func (w *world) before(ctx context.Context, m outbox.Message) error {
	w.sleep(2 * time.Millisecond)
	if away := w.away.Load(); away != nil && (*away == "*" || *away == m.Topic) {
		if w.plan.Hang {
			<-ctx.Done()
			return outbox.TimedOut(ctx.Err())
		}
		return outbox.Unavailable(errAway)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.fates[string(m.Payload)]
	if f.fails && (w.plan.Operations == 0 || f.refused == 0) {
		f.refused++
		return outbox.Permanent(errTest)
	}
	if f.refused < f.retries {
		f.refused++
		return outbox.Retryable(errTest)
	}
	return nil
}

func (w *world) after(_ context.Context, m outbox.Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.fates[string(m.Payload)]; f.lostAck && f.lost == 0 {
		f.lost++
		return outbox.Retryable(errTest)
	}
	return nil
}

// checkShares checks that the relays that are left have divided all shards.
func (w *world) checkShares() {
	least, most, all := w.plan.Shards, 0, 0
	for _, p := range w.alive {
		held := p.relay.Stats().Routes[0].ShardsHeld
		least, most, all = min(least, held), max(most, held), all+held
	}
	if all != w.plan.Shards || w.plan.Shares && most-least > 1 {
		w.problem("%d relays hold %d of %d shards, between %d and %d each", len(w.alive), all, w.plan.Shards, least, most)
	}
}

func (w *world) check() {
	got := make(map[string]int)
	last := make(map[string]int)
	for _, m := range w.broker.Messages("orders") {
		f := w.fates[string(m.Payload)]
		if !f.committed {
			w.problem("%s was published, and its transaction rolled back", m.Payload)
		}
		got[string(m.Payload)]++
		if f.key == "" || f.scheduled || f.late || got[string(m.Payload)] > 1 {
			continue
		}
		if f.number < last[f.key] {
			w.problem("%s arrived after number %d", m.Payload, last[f.key])
		}
		last[f.key] = f.number
	}
	failed := make(map[string]int)
	for _, p := range w.store.Parked("r") {
		if p.State != outbox.StateFailed && !(p.State == outbox.StateDiscarded && w.fates[string(p.Message.Payload)].discarded) {
			w.problem("%s is still %s", p.Message.Payload, p.State)
		}
		failed[string(p.Message.Payload)] = p.Attempts
	}
	// What was published with no record of it may come again.
	exact := w.plan.Kills == 0 && w.plan.Outages == 0 && w.plan.StoreOutages == 0 && w.plan.Operations == 0
	for id, f := range w.fates {
		switch {
		case !f.committed:
		case f.fails:
			// With outages one that timed out may have spent an attempt before.
			if failed[id] == 0 && (w.plan.Operations == 0 || got[id] == 0 && !f.discarded) || exact && (failed[id] != 1 || f.refused != 1) {
				w.problem("%s should have failed at once: attempts %d, tried %d times", id, failed[id], f.refused)
			}
		case got[id] == 0 && !f.discarded:
			w.problem("%s was lost", id)
		case exact && got[id] != 1+f.lost:
			w.problem("%s was published %d times", id, got[id])
		case exact && f.refused != f.retries:
			w.problem("%s was refused %d times, should be %d", id, f.refused, f.retries)
		}
	}
}
