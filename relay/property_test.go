package relay_test

import (
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
