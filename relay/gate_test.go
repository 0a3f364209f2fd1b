package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// handmade is a store of one shard whose test decides what is received when,
// and when a Settle is committed.
type handmade struct {
	closed   map[string]int
	received chan []relay.Delivery
	commit   chan struct{} // nil: at once

	mu      sync.Mutex
	settled []string // "seq state", in order
}

func (h *handmade) Shards(context.Context) (int, error) { return 1, nil }
func (h *handmade) Acquire(context.Context, relay.Claim) (relay.Lease, error) {
	return h, nil
}
func (h *handmade) ClosedKeys() map[string]int  { return h.closed }
func (h *handmade) Deadline() time.Time         { return time.Now().Add(time.Hour) }
func (h *handmade) Close(context.Context) error { return nil }
func (h *handmade) Receive(ctx context.Context, _ int) ([]relay.Delivery, error) {
	select {
	case d := <-h.received:
		return d, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (h *handmade) Settle(_ context.Context, outcomes []relay.Outcome) error {
	if h.commit != nil {
		<-h.commit
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range outcomes {
		h.settled = append(h.settled, fmt.Sprint(o.Delivery.Seq, " ", o.State))
	}
	return nil
}

// outcomes are what was settled since the last call.
func (h *handmade) outcomes() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.settled = nil }()
	return strings.Join(h.settled, ", ")
}

// row is message number seq of key k, from the log.
func row(seq int64) relay.Delivery {
	return relay.Delivery{Message: message("k", int(seq)), Seq: seq, State: outbox.StatePending}
}

func parked(seq int64, attempts int) relay.Delivery {
	d := row(seq)
	d.Parked, d.Place, d.Arrival, d.Attempts = true, relay.PlaceKept, seq, attempts
	return d
}

// published collects what reaches the broker; refuse, by payload, makes it an
// error once.
type published struct {
	mu     sync.Mutex
	got    []string
	refuse map[string]error
}

func (p *published) Publish(_ context.Context, msgs []outbox.Message) []outbox.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	results := make([]outbox.Result, len(msgs))
	for i, m := range msgs {
		n := string(m.Payload)
		if results[i].Err = p.refuse[n]; results[i].Err != nil {
			delete(p.refuse, n)
			continue
		}
		p.got = append(p.got, n)
	}
	return results
}

func (p *published) list() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.got = nil }()
	return strings.Join(p.got, " ")
}

// gate runs steps against a relay on a handmade store.
type gate struct {
	t     *testing.T
	store *handmade
	sink  *published
}

// step hands out deliveries, waits a moment, and checks what was published
// and settled.
func (g gate) step(name, wantPublished, wantSettled string, deliveries ...relay.Delivery) {
	g.t.Helper()
	if len(deliveries) > 0 {
		g.store.received <- deliveries
	}
	time.Sleep(100 * time.Millisecond)
	if got := g.sink.list(); got != wantPublished {
		g.t.Errorf("%s: published %q, want %q", name, got, wantPublished)
	}
	if got := g.store.outcomes(); got != wantSettled {
		g.t.Errorf("%s: settled %q, want %q", name, got, wantSettled)
	}
}

func withGate(t *testing.T, store *handmade, refuse map[string]error, steps func(g gate)) {
	synctest.Test(t, func(t *testing.T) {
		store.received = make(chan []relay.Delivery)
		sink := &published{refuse: refuse}
		_, stop := start(t, relay.Config{Store: store, Routes: []relay.Route{orders(sink)}})
		synctest.Wait()
		steps(gate{t, store, sink})
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// What the store handed out before it heard that an earlier message of the key
// was refused has to wait again, until that one has come back.
func TestHandedOutBehindARefusedMessage(t *testing.T) {
	store := &handmade{closed: map[string]int{"k": 4}}
	withGate(t, store, map[string]error{"1": errTest}, func(g gate) {
		store.commit = make(chan struct{})
		g.step("the first is refused", "", "", parked(1, 0))
		g.step("the second was handed out before that was recorded", "", "", parked(2, 0))
		store.commit <- struct{}{}
		g.step("recorded", "", "1 retrying")
		close(store.commit)
		g.step("the second had to wait", "", "2 blocked, 4 blocked, 5 blocked", parked(4, 0), row(5)) // 4: in a call begun before
		g.step("the first comes again", "1", "1 sent", parked(1, 1))
		g.step("then the others", "2 4 5", "2 sent, 4 sent, 5 sent", parked(2, 0), parked(4, 0), parked(5, 0))
		g.step("one that an earlier lease parked is left", "6", "6 sent", parked(6, 0))
		g.step("open again", "7", "7 sent", row(7))
	})
}

// What an operator discards is heard of before the store has taken back what was
// handed out behind it: that comes again, and nothing passes it.
func TestNothingPassesWhatComesAgain(t *testing.T) {
	store := &handmade{closed: map[string]int{"k": 4}}
	discarded := parked(1, 1)
	discarded.State = outbox.StateDiscarded
	withGate(t, store, map[string]error{"1": errTest}, func(g gate) {
		store.commit = make(chan struct{})
		g.step("the first is refused", "", "", parked(1, 0))
		g.step("the third was handed out before that was recorded", "", "", parked(3, 0))
		store.commit <- struct{}{}
		close(store.commit)
		g.step("recorded", "", "1 retrying, 3 blocked")
		g.step("the fourth must not pass the third", "2", "1 discarded, 4 blocked, 2 sent", discarded, parked(2, 0), parked(4, 0))
		g.step("they come again", "3 4", "3 sent, 4 sent", parked(3, 0), parked(4, 0))
		g.step("open again", "5", "5 sent", row(5))
	})
}

// A message that has no place in its key's order waits for nobody, and holds
// nobody up.
func TestNoPlaceInTheOrder(t *testing.T) {
	store := &handmade{closed: map[string]int{"k": 2}}
	late := parked(1, 0)
	late.Place = relay.PlaceNone
	withGate(t, store, map[string]error{"1": errTest}, func(g gate) {
		g.step("its key is closed, and it is refused", "", "1 retrying", late)
		g.step("the others go on", "2 3", "2 sent, 3 sent", parked(2, 0), parked(3, 0))
		g.step("the key is open", "4 1", "4 sent, 1 sent", row(4), late)
	})
}

// What the store has settled is passed on, and what was in its way goes on.
func TestSettledByTheStore(t *testing.T) {
	store := &handmade{closed: map[string]int{"k": 3}}
	released, gone := parked(1, 4), parked(2, 0)
	released.State, released.Released = outbox.StateFailed, true
	gone.State, gone.Error = outbox.StateFailed, "gone"
	withGate(t, store, nil, func(g gate) {
		g.step("heard of", "3", "1 failed, 2 failed, 3 sent", released, gone, parked(3, 0))
		g.step("open", "4", "4 sent", row(4))
	})
}

// A message from the log waits for all that is parked before it; a scheduled
// one that has come due does too, though it was not among them.
func TestClosedKey(t *testing.T) {
	store := &handmade{closed: map[string]int{"k": 1}}
	due := parked(7, 0)
	due.Place = relay.PlaceNext // it was scheduled
	withGate(t, store, nil, func(g gate) {
		g.step("closed by an earlier lease", "", "8 blocked", row(8))
		g.step("scheduled", "", "7 blocked", due)
		g.step("the one that closed it", "1", "1 sent", parked(1, 3))
		g.step("still two parked", "", "9 blocked", row(9))
		g.step("the parked ones", "8 7", "8 sent, 7 sent", parked(8, 0), parked(7, 0))
		g.step("one is left", "", "10 blocked", row(10))
		g.step("and another", "9 10", "9 sent, 10 sent", parked(9, 0), parked(10, 0))
		g.step("open again", "11 12", "11 sent, 12 sent", row(11), row(12))
	})
}

// A key stays in order when messages of several outcomes follow each other.
func TestOutcomesInTheOrderOfTheKey(t *testing.T) {
	store := &handmade{}
	expired, later := row(2), row(4)
	expired.State, later.State = outbox.StateExpired, outbox.StateScheduled
	withGate(t, store, map[string]error{"3": outbox.Permanent(errTest), "5": errTest}, func(g gate) {
		g.store.received <- []relay.Delivery{row(1), expired, row(3), later, row(5), row(6), row(7)}
		time.Sleep(100 * time.Millisecond)
		if got := g.sink.list(); got != "1" {
			t.Errorf("published %q", got)
		}
		got := strings.Split(g.store.outcomes(), ", ")
		var ofKey []string
		for _, o := range got {
			if o != "2 expired" && o != "4 scheduled" { // they are in nobody's way
				ofKey = append(ofKey, o)
			}
		}
		if want := []string{"1 sent", "3 failed", "5 retrying", "6 blocked", "7 blocked"}; len(got) != 7 || !slices.Equal(ofKey, want) {
			t.Errorf("settled %q", got)
		}
	})
}
