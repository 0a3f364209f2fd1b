package poll_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
)

// fleet is several relays on one database that publish to the same sink.
type fleet struct {
	t    *testing.T
	pool *pgxpool.Pool
	sink *sink
	crew int
}

// sink takes messages, and writes down when.
type sink struct {
	delay  time.Duration // for each message
	refuse bool

	mu      sync.Mutex
	flying  map[uuid.UUID]bool
	calls   map[uuid.UUID][]time.Time
	doubles int // messages that came while they were being taken
}

func (s *sink) Publish(_ context.Context, msgs []outbox.Message) []outbox.Result {
	results := make([]outbox.Result, len(msgs))
	now := time.Now()
	s.mu.Lock()
	for i := range msgs {
		id := msgs[i].ID
		if s.flying[id] {
			s.doubles++
		}
		s.flying[id] = true
		s.calls[id] = append(s.calls[id], now)
		if s.refuse {
			results[i].Err = outbox.Retryable(errors.New("not this time"))
		}
	}
	s.mu.Unlock()
	time.Sleep(time.Duration(len(msgs)) * s.delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range msgs {
		delete(s.flying, msgs[i].ID)
	}
	return results
}

// times is how often each message came.
func (s *sink) times() (of map[uuid.UUID]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of = make(map[uuid.UUID]int, len(s.calls))
	for id, calls := range s.calls {
		of[id] = len(calls)
	}
	return of
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	pool := open(t)
	if _, err := pgstore.Migrate(t.Context(), pool, pgstore.Options{}); err != nil {
		t.Fatal(err)
	}
	return &fleet{t: t, pool: pool, sink: &sink{flying: map[uuid.UUID]bool{}, calls: map[uuid.UUID][]time.Time{}}}
}

// join starts a relay; the function that it returns stops it.
func (f *fleet) join(edit ...func(*relay.Route)) (*relay.Relay, func() error) {
	f.t.Helper()
	store, err := poll.New(poll.Config{Pool: f.pool})
	if err != nil {
		f.t.Fatal(err)
	}
	route := relay.Route{Name: "route", Topics: []string{"**"}, Publisher: f.sink}
	for _, e := range edit {
		e(&route)
	}
	f.crew++
	r, err := relay.New(relay.Config{
		Store: store, Owner: fmt.Sprint("relay ", f.crew), Routes: []relay.Route{route}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop := sync.OnceValue(func() error { cancel(); return <-done })
	f.t.Cleanup(func() { _ = stop() })
	return r, stop
}

// enqueue commits n messages of so many keys.
func (f *fleet) enqueue(n, keys int) {
	f.t.Helper()
	err := pgx.BeginFunc(f.t.Context(), f.pool, func(tx pgx.Tx) error {
		msgs := make([]outbox.Message, n)
		for i := range msgs {
			msgs[i] = outbox.Message{Topic: "orders", Key: fmt.Sprint("k", i%keys), Payload: []byte("{}")}
		}
		return outbox.NewWriter(pgstore.Pgx{}).Enqueue(f.t.Context(), tx, msgs...)
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// await waits until ok.
func (f *fleet) await(what string, ok func() bool) {
	f.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("%s: it does not come to that", what)
		}
	}
}

// A message that is refused is tried again when its wait is over, as often as
// it should be, however many relays there are: each attempt is one relay's.
func TestRetriesDoNotDependOnTheNumberOfRelays(t *testing.T) {
	const attempts, wait = 4, 500 * time.Millisecond
	n := testsize.Pick(300, 1000)
	medians := map[int]time.Duration{}
	for _, relays := range []int{1, 8} {
		t.Run(fmt.Sprint(relays, " relays"), func(t *testing.T) {
			f := newFleet(t)
			f.sink.refuse = true
			for range relays {
				f.join(func(r *relay.Route) {
					r.Retry = relay.RetryPolicy{MaxAttempts: attempts, Initial: wait, Factor: 1, Jitter: -1}
				})
			}
			f.enqueue(n, n)
			f.await("all have failed", func() bool {
				var failed int
				if err := f.pool.QueryRow(t.Context(), `SELECT count(*) FROM postrider.parked WHERE state = 'failed' AND attempts = $1`, attempts).Scan(&failed); err != nil {
					t.Fatal(err)
				}
				return failed == n
			})
			var waits []time.Duration
			for id, calls := range f.sink.calls {
				if len(calls) != attempts {
					t.Errorf("%s was tried %d times, want %d", id, len(calls), attempts)
				}
				for i := range calls[1:] {
					waits = append(waits, calls[i+1].Sub(calls[i]))
				}
			}
			slices.Sort(waits)
			medians[relays] = waits[len(waits)/2]
			t.Logf("between two attempts: at least %v, half of them up to %v, at most %v", waits[0], medians[relays], waits[len(waits)-1])
			if waits[0] < wait {
				t.Errorf("one was tried again after %v, before its wait of %v was over", waits[0], wait)
			}
		})
	}
	// Divided by the relays it would be 62 ms. Above it a busy machine shows.
	if one, eight := medians[1], medians[8]; eight < wait || eight > 2*max(one, wait) {
		t.Errorf("half of the waits are up to %v with one relay, and %v with eight", one, eight)
	}
}

// Many messages are due at the same time, and the sink is slow: none is handed
// out while it is being sent, by whichever relay, also while others join.
func TestDueBacklogWithASlowSink(t *testing.T) {
	n := testsize.Pick(2000, 10_000)
	f := newFleet(t)
	f.enqueue(n, n)
	f.sink.refuse = true
	retry := func(r *relay.Route) { r.Retry = relay.RetryPolicy{Initial: time.Second, Jitter: -1} }
	_, stop := f.join(retry)
	f.await("all are refused once", func() bool {
		var parked int
		if err := f.pool.QueryRow(t.Context(), `SELECT count(*) FROM postrider.parked`).Scan(&parked); err != nil {
			t.Fatal(err)
		}
		return parked == n
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.pool.Exec(t.Context(), `UPDATE postrider.parked SET due_at = now() - interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	f.sink = &sink{delay: 2 * time.Millisecond, flying: map[uuid.UUID]bool{}, calls: map[uuid.UUID][]time.Time{}}
	var stops []func() error
	for i := range 4 {
		_, stop := f.join(retry)
		stops = append(stops, stop)
		f.await("some more are sent", func() bool { return len(f.sink.times()) >= n*(i+1)/5 })
	}
	f.await("all are sent", func() bool { return len(f.sink.times()) == n })
	for _, stop := range stops {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	for id, times := range f.sink.times() {
		if times != 1 {
			t.Errorf("%s was sent %d times", id, times)
		}
	}
	if f.sink.doubles != 0 {
		t.Errorf("%d messages were handed out while they were being sent", f.sink.doubles)
	}
}

// Relays are stopped under load, again and again, while others go on: each stop
// is clean and leaves nothing running, and no message is sent twice.
func TestStopsUnderLoad(t *testing.T) {
	stops, each := testsize.Pick(20, 100), 300
	f := newFleet(t)
	f.sink.delay = 100 * time.Microsecond
	before := goleak.IgnoreCurrent()
	var placed atomic.Int64
	for range stops {
		written := make(chan struct{})
		go func() {
			defer close(written)
			f.enqueue(each, 100)
			placed.Add(int64(each))
		}()
		others := []func() error{}
		for range 2 {
			_, stop := f.join()
			others = append(others, stop)
		}
		had := len(f.sink.times())
		f.await("messages flow", func() bool { return len(f.sink.times()) > had })
		for _, stop := range others {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		<-written
	}
	_, stop := f.join()
	f.await("all are sent", func() bool { return len(f.sink.times()) == int(placed.Load()) })
	if err := stop(); err != nil {
		t.Error(err)
	}
	for id, times := range f.sink.times() {
		if times != 1 {
			t.Errorf("%s was sent %d times", id, times)
		}
	}
	f.pool.Reset() // connections have goroutines of their own for a moment
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}
