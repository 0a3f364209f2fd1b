package poll_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
)

// counting takes the messages "1", "2", … of key "k" in their order, and refuses
// the first until it is told.
type counting struct {
	well  atomic.Bool
	other atomic.Int64 // messages of other keys

	mu    sync.Mutex
	last  int
	wrong string
}

func (c *counting) Publish(_ context.Context, msgs []outbox.Message) []outbox.Result {
	results := make([]outbox.Result, len(msgs))
	for i, m := range msgs {
		switch {
		case m.Key != "k":
			c.other.Add(1)
		case string(m.Payload) == "1" && !c.well.Load():
			results[i].Err = outbox.Retryable(errors.New("refused"))
		default:
			c.take(string(m.Payload))
		}
	}
	return results
}

func (c *counting) take(payload string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, _ := strconv.Atoi(payload); n == c.last+1 {
		c.last = n
	} else if c.wrong == "" {
		c.wrong = payload + " arrived after " + strconv.Itoa(c.last)
	}
}

func (c *counting) arrived() (last int, wrong string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, c.wrong
}

// heap is how much of it is in use, in MiB.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc >> 20
}

// Very many messages behind one that is retried fill no memory, hold no other
// key up, and come in their order once it has gone out.
func TestALongLineBehindARetry(t *testing.T) {
	const most = 64 // MiB
	w := newWorld(t)
	n := testsize.Pick(5_000, 1_000_000)
	w.exec(`INSERT INTO postrider.log_0 (id, topic, key, payload)
		SELECT gen_random_uuid(), 't', 'k', convert_to(i::text, 'UTF8') FROM generate_series(1, $1::int) AS i`, n)
	w.exec(`ANALYZE postrider.log_0`)
	store, err := poll.New(poll.Config{Pool: w.pool})
	if err != nil {
		t.Fatal(err)
	}
	sink := &counting{}
	r, err := relay.New(relay.Config{Store: store, Routes: []relay.Route{{
		Name: "route", Topics: []string{"**"}, Publisher: sink,
		Retry: relay.RetryPolicy{MaxAttempts: 1 << 20, Initial: 100 * time.Millisecond, Max: 200 * time.Millisecond},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}()
	begin := time.Now()
	until(t, 20*time.Minute, func() bool {
		var blocked int
		err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM postrider.parked WHERE state = 'blocked'`).Scan(&blocked)
		return err == nil && blocked == n-1
	})
	parked := time.Since(begin)
	if used := heap(); used > most {
		t.Errorf("with %d messages parked the heap has %d MiB", n, used)
	}
	w.enqueue(w.pool, "other", "x")
	until(t, 20*time.Second, func() bool { return sink.other.Load() == 1 })
	sink.well.Store(true)
	begin = time.Now()
	peak := uint64(0)
	until(t, 20*time.Minute, func() bool {
		peak = max(peak, heap())
		last, wrong := sink.arrived()
		return last == n || wrong != ""
	})
	if last, wrong := sink.arrived(); wrong != "" || last != n {
		t.Errorf("%d of %d messages arrived; %s", last, n, wrong)
	}
	if peak > most {
		t.Errorf("while they came the heap had %d MiB", peak)
	}
	t.Logf("%d messages were parked in %v and sent in %v, with at most %d MiB", n, parked.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond), peak)
	w.waitFor(`SELECT count(*) = 0 FROM postrider.parked`)
}

// until waits for a condition.
func until(t *testing.T, patience time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it took too long")
		}
	}
}

// A long line that goes on leaves room to a message that waited for a time.
func TestALongLineLeavesRoomToARetry(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO postrider.parked (route, shard, seq, state, closes, due_at, key, id, topic, created_at, type, content_type, payload)
		SELECT 'route', 0, i, 'blocked', true, '-infinity', 'k' || i % 3, gen_random_uuid(), 't', now(), '', '', '' FROM generate_series(1, 3000) AS i`)
	w.exec(`INSERT INTO postrider.parked (route, shard, seq, state, closes, due_at, key, id, topic, created_at, type, content_type, payload)
		SELECT 'route', 0, 5000, 'retrying', true, now(), 'other', gen_random_uuid(), 't', now(), '', '', ''`)
	lease := w.acquire()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for out := 0; ; {
		got, err := lease.Receive(ctx, 100)
		if err != nil {
			t.Fatalf("after %d messages: %v", out, err)
		}
		for _, d := range got {
			if d.Seq == 5000 {
				return
			}
		}
		if out += len(got); out > 2000 {
			t.Fatal("it did not come")
		}
	}
}
