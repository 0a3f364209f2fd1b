package poll_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
)

// tallied counts statements by what they are for.
type tallied struct {
	*pgxpool.Pool
	polls, looks, pages, parked atomic.Int64
}

func (c *tallied) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	switch {
	case strings.Contains(sql, "UNION ALL SELECT -1"):
		c.polls.Add(1)
	case strings.Contains(sql, "BETWEEN"):
		c.pages.Add(1)
	case strings.Contains(sql, "WITH ORDINALITY AS l (route, shard"):
		c.looks.Add(1)
	}
	return c.Pool.Query(ctx, sql, args...)
}

func (c *tallied) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	c.parked.Add(1)
	return c.Pool.SendBatch(ctx, batch)
}

// idlers are leases of two routes on four shards, each of which receives.
type idlers struct {
	t      *testing.T
	db     *tallied
	leases []relay.Lease
	stops  []context.CancelFunc
	got    []chan relay.Delivery
	ended  []chan error
}

func newIdlers(t *testing.T) *idlers {
	pool, err := pgxpool.New(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pgstore.Migrate(t.Context(), pool, pgstore.Options{Shards: 4}); err != nil {
		t.Fatal(err)
	}
	i := &idlers{t: t, db: &tallied{Pool: pool}}
	store, err := poll.New(poll.Config{Pool: i.db})
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range []string{"one", "two"} {
		for shard := range 4 {
			lease, err := store.Acquire(t.Context(), relay.Claim{Route: route, Shard: shard, Owner: "relay", TTL: time.Hour, Topics: []string{"**"}})
			if err != nil {
				t.Fatal(err)
			}
			i.leases = append(i.leases, lease)
		}
	}
	i.db.parked.Store(0)
	for _, lease := range i.leases {
		ctx, stop := context.WithCancel(t.Context())
		got, ended := make(chan relay.Delivery, 10), make(chan error, 1)
		i.stops, i.got, i.ended = append(i.stops, stop), append(i.got, got), append(i.ended, ended)
		go func() {
			for {
				deliveries, err := lease.Receive(ctx, 10)
				if err != nil {
					ended <- err
					return
				}
				for _, d := range deliveries {
					got <- d
				}
			}
		}()
	}
	t.Cleanup(func() {
		for at, stop := range i.stops {
			stop()
			<-i.ended[at]
		}
	})
	return i
}

func (i *idlers) exec(sql string, args ...any) {
	i.t.Helper()
	if _, err := i.db.Exec(i.t.Context(), sql, args...); err != nil {
		i.t.Fatal(err)
	}
}

func (i *idlers) next(at int) relay.Delivery {
	i.t.Helper()
	select {
	case d := <-i.got[at]:
		return d
	case err := <-i.ended[at]:
		i.t.Fatalf("lease %d: %v", at, err)
	case <-time.After(20 * time.Second):
		i.t.Fatalf("nothing came to lease %d", at)
	}
	panic("not reached")
}

// Leases that have nothing to do share one statement for each poll and one for
// all parked messages; none of them reads the log or its parked messages.
func TestIdleLeasesShareTheirStatements(t *testing.T) {
	i := newIdlers(t)
	for began := time.Now(); i.db.parked.Load() < 8 || i.db.looks.Load() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("%d leases of 8 have looked for parked messages, and %d times all of them together", i.db.parked.Load(), i.db.looks.Load())
		}
	}
	polls, looks, pages, parked := i.db.polls.Load(), i.db.looks.Load(), i.db.pages.Load(), i.db.parked.Load()
	const idle = 2500 * time.Millisecond
	time.Sleep(idle)
	if n := i.db.polls.Load() - polls; n < 3 || n > int64(idle/(20*time.Millisecond)) {
		t.Errorf("%d polls in %v", n, idle)
	}
	if n := i.db.looks.Load() - looks; n < 1 || n > 3 {
		t.Errorf("%d looks for parked messages in %v", n, idle)
	}
	if n := i.db.pages.Load() - pages; n > 0 {
		t.Errorf("%d pages were read though nothing was there", n)
	}
	// On a busy machine a lease may come first with its own.
	if n := i.db.parked.Load() - parked; n > 8 {
		t.Errorf("each lease looked for its own parked messages: %d statements", n)
	}
}

// What somebody changes about a parked message is noticed, by the lease that it
// concerns.
func TestIdleLeasesNoticeWhatBecomesDue(t *testing.T) {
	i := newIdlers(t)
	i.exec(`INSERT INTO postrider.log_2 (id, topic, payload) VALUES (gen_random_uuid(), 't', '')`)
	for _, at := range []int{2, 6} {
		d := i.next(at)
		if err := i.leases[at].Settle(t.Context(), []relay.Outcome{{Delivery: d, State: outbox.StateRetrying, Attempts: 1, RetryAfter: time.Hour}}); err != nil {
			t.Fatal(err)
		}
	}
	began := i.db.looks.Load()
	for i.db.looks.Load() < began+2 { // until it is at rest again
		time.Sleep(10 * time.Millisecond)
	}
	i.exec(`UPDATE postrider.parked SET due_at = now() WHERE route = 'two'`)
	if d := i.next(6); !d.Parked || d.Attempts != 1 {
		t.Errorf("%+v came", d)
	}
	select {
	case d := <-i.got[2]:
		t.Errorf("route one got %+v", d)
	default:
	}
}

// Whichever lease ends, the others go on, and each is woken by its own shard.
func TestAnotherLeaseAsksWhenOneEnds(t *testing.T) {
	i := newIdlers(t)
	for at := range i.leases {
		shard := at % 4
		i.exec(`INSERT INTO postrider.log_` + string(rune('0'+shard)) + ` (id, topic, payload) VALUES (gen_random_uuid(), 't', '')`)
		i.next(at)
		if at < 4 {
			i.next(at + 4)
		}
		i.stops[at]()
		err := <-i.ended[at]
		if i.ended[at] <- err; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := i.leases[at].Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
