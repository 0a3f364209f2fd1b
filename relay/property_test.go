package relay_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// plan is what happens in one run of the world.
type plan struct {
	Seed                        uint64
	Shards, Relays, Keys        int
	Destinations                int
	Transactions                int
	Concurrency, Limit          int
	Kills, Restarts, Outages    int
	StoreOutages                int
	Shares                      bool // the store has a roster
	Pauses                      int
	Retry, Fail, LostAck, Later int // percent of the messages
	Hang, Recall, Hold          bool
	Operations                  int // of an operator
}

func drawPlan(t *rapid.T) plan {
	percent := rapid.SampledFrom([]int{0, 0, 2, 20})
	return plan{
		Seed:         rapid.Uint64().Draw(t, "seed"),
		Shards:       rapid.IntRange(1, 4).Draw(t, "shards"),
		Relays:       rapid.IntRange(1, 5).Draw(t, "relays"),
		Keys:         rapid.SampledFrom([]int{1, 3, 20}).Draw(t, "keys"),
		Destinations: rapid.SampledFrom([]int{1, 3}).Draw(t, "destinations"),
		Transactions: rapid.IntRange(1, 150).Draw(t, "transactions"),
		Concurrency:  rapid.SampledFrom([]int{1, 3, 8}).Draw(t, "concurrency"),
		Limit:        rapid.SampledFrom([]int{1, 20, 10000}).Draw(t, "limit"),
		Kills:        rapid.SampledFrom([]int{0, 0, 1, 4}).Draw(t, "kills"),
		Restarts:     rapid.SampledFrom([]int{0, 0, 1, 4}).Draw(t, "restarts"),
		Outages:      rapid.IntRange(0, 2).Draw(t, "outages"),
		StoreOutages: rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "store outages"),
		Shares:       rapid.Bool().Draw(t, "shares"),
		Pauses:       rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "pauses"),
		Retry:        percent.Draw(t, "retry"),
		Fail:         percent.Draw(t, "fail"),
		LostAck:      percent.Draw(t, "lost ack"),
		Later:        percent.Draw(t, "later"),
		Hang:         rapid.Bool().Draw(t, "hang"),
		Recall:       rapid.Bool().Draw(t, "recall"),
		Hold:         rapid.Bool().Draw(t, "hold"),
		Operations:   rapid.SampledFrom([]int{0, 0, 5, 40}).Draw(t, "operations"),
	}
}

// Whatever fails: nothing is lost, nothing is published that was rolled back,
// first deliveries of a key keep the order, and without a kill, an outage or a
// lost acknowledgement nothing is published twice and no attempt is spent twice.
func TestProperties(t *testing.T) {
	if err := flag.Set("rapid.checks", strconv.Itoa(testsize.Pick(100, 3000))); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		var problems []string
		synctest.Test(t, func(t *testing.T) { problems = newWorld(t, p).run() })
		for _, problem := range problems {
			rt.Error(problem)
		}
	})
}

// world is one run: writers, relays that come and go, and a broker that fails.
type world struct {
	t      *testing.T
	plan   plan
	store  *memstore.Store
	broker *membroker.Broker
	away   atomic.Pointer[string] // the topic whose destination is away, * for all

	mu       sync.Mutex
	random   *rand.Rand
	next     map[string]int // by key, the next number
	fates    map[string]*fate
	problems []string
	alive    []*process
	born     int
}

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

type process struct {
	relay *relay.Relay
	store *faultyStore
	dead  atomic.Bool
	stop  func() error
}

func newWorld(t *testing.T, p plan) *world {
	broker := membroker.New()
	for i := range p.Destinations { // they all lead to one queue, which shows the order
		broker.Subscribe(fmt.Sprint("orders.", i), "orders")
	}
	return &world{
		t: t, plan: p, store: memstore.New(memstore.Options{Shards: p.Shards}), broker: broker,
		random: rand.New(rand.NewPCG(p.Seed, 1)), next: make(map[string]int), fates: make(map[string]*fate),
	}
}

func (w *world) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

func (w *world) chance(percent int) bool { return w.draw(100) < percent }

func (w *world) topic() string { return fmt.Sprint("orders.", w.draw(w.plan.Destinations)) }

func (w *world) sleep(max time.Duration) { time.Sleep(time.Duration(w.draw(int(max)))) }

func (w *world) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

func (w *world) run() []string {
	for range w.plan.Relays {
		w.begin()
	}
	var busy sync.WaitGroup
	for range 3 {
		busy.Go(func() {
			for range w.plan.Transactions / 3 {
				w.write()
				w.sleep(30 * time.Millisecond)
			}
		})
	}
	busy.Go(func() {
		for range w.plan.Kills {
			w.sleep(3 * time.Second)
			w.end(true)
			w.begin()
		}
	})
	busy.Go(func() {
		for range w.plan.Operations {
			w.sleep(500 * time.Millisecond)
			w.operate()
		}
	})
	busy.Go(func() {
		for range w.plan.Restarts {
			w.sleep(2 * time.Second)
			w.end(false)
			w.begin()
		}
	})
	busy.Go(func() {
		for range w.plan.Outages {
			w.sleep(2 * time.Second)
			what := w.topic()
			if w.chance(50) {
				what = "*"
			}
			w.away.Store(&what)
			w.sleep(30 * time.Second)
			w.away.Store(nil)
		}
	})
	busy.Go(func() {
		for range w.plan.StoreOutages {
			w.sleep(2 * time.Second)
			w.storeAway(errAway)
			w.sleep(40 * time.Second)
			w.storeAway(nil)
		}
	})
	busy.Go(func() {
		for range w.plan.Pauses {
			w.sleep(2 * time.Second)
			w.store.SetPaused("r", true)
			w.sleep(5 * time.Second)
			w.store.SetPaused("r", false)
		}
	})
	busy.Wait()
	time.Sleep(15 * time.Minute) // leases run out, retries come due
	w.letGo()
	w.checkShares()
	for len(w.alive) > 0 {
		w.end(false)
	}
	w.check()
	return w.problems
}

func (w *world) storeAway(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.alive {
		p.store.set(err)
	}
}

// begin starts one more relay.
func (w *world) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &process{store: &faultyStore{Store: w.store, recalls: w.plan.Recall}}
	w.born++
	publisher := &membroker.Publisher{Broker: w.broker, Before: w.before, After: w.after}
	store := relay.Store(p.store)
	if w.plan.Shares {
		store = &sharing{faultyStore: p.store}
	}
	p.relay, p.stop = start(w.t, relay.Config{
		Store: store, Owner: fmt.Sprint("relay-", w.born), Limits: relay.Limits{InFlightMessages: w.plan.Limit},
		Routes: []relay.Route{{
			Name: "r", Topics: []string{"orders.*"}, Publisher: mortal{publisher, &p.dead}, Concurrency: w.plan.Concurrency,
			Retry: relay.RetryPolicy{MaxAttempts: 10}, OnFailure: w.onFailure(),
		}},
	})
	w.alive = append(w.alive, p)
}

// end stops the relay that has run longest, or kills it: then neither the
// store nor the broker hears of it any more.
func (w *world) end(kill bool) {
	w.mu.Lock()
	if len(w.alive) == 0 { // the others are being stopped already
		w.mu.Unlock()
		return
	}
	p := w.alive[0]
	w.alive = w.alive[1:]
	w.mu.Unlock()
	if kill {
		p.store.die()
		p.dead.Store(true)
	}
	if err := p.stop(); err != nil && !kill && w.plan.StoreOutages == 0 && w.plan.Outages == 0 {
		w.problem("a clean stop: %v", err)
	}
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
