package relay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// counter acknowledges everything, after a while, and tells when it has seen
// enough.
type counter struct {
	takes time.Duration
	left  atomic.Int64
	done  chan struct{}
}

func (c *counter) expect(n int) <-chan struct{} {
	c.left.Store(int64(n))
	c.done = make(chan struct{})
	return c.done
}

// resolving is one whose messages go to as many destinations as there are topics.
type resolving struct{ counter }

func (r *resolving) Destination(m *outbox.Message) string { return m.Topic }

func (c *counter) Publish(_ context.Context, msgs []outbox.Message) []outbox.Result {
	if c.takes > 0 {
		time.Sleep(c.takes)
	}
	if n := int64(len(msgs)); c.left.Add(-n) <= 0 && c.left.Load() > -n {
		close(c.done)
	}
	return make([]outbox.Result, len(msgs))
}

// BenchmarkRelay measures the relay's own work: memory on both sides.
func BenchmarkRelay(b *testing.B) {
	for _, keys := range []int{0, 1, 100, 1 << 30} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) { drain(b, &counter{}, keys, 1) })
	}
}

// BenchmarkSlowPublisher measures reading ahead: each call takes 2 ms, however
// many messages it has.
func BenchmarkSlowPublisher(b *testing.B) {
	for _, keys := range []int{0, 1000, 1 << 30} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) { drain(b, &counter{takes: 2 * time.Millisecond}, keys, 1) })
	}
}

// BenchmarkDestinations is the same for a route with several destinations.
func BenchmarkDestinations(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		b.Run(fmt.Sprintf("destinations=%d", n), func(b *testing.B) {
			drain(b, &resolving{counter{takes: 2 * time.Millisecond}}, 0, n)
		})
	}
}

// drain relays b.N messages.
func drain(b *testing.B, publisher outbox.Publisher, keys, topics int) {
	store := memstore.New(memstore.Options{})
	tx := store.Begin()
	payload := make([]byte, 200)
	msgs := make([]outbox.Message, 0, 1000)
	for i := range b.N {
		m := outbox.Message{Topic: "orders", Payload: payload, ID: [16]byte{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24), 1}}
		if topics > 1 {
			m.Topic = fmt.Sprint("orders-", i%topics)
		}
		if keys > 0 {
			m.Key = fmt.Sprint("key-", i%keys)
		}
		if msgs = append(msgs, m); len(msgs) == cap(msgs) || i == b.N-1 {
			if err := store.Insert(b.Context(), tx, msgs); err != nil {
				b.Fatal(err)
			}
			msgs = msgs[:0]
		}
	}
	if err := tx.Commit(); err != nil {
		b.Fatal(err)
	}
	done := publisher.(interface{ expect(n int) <-chan struct{} }).expect(b.N)
	b.ReportAllocs()
	b.ResetTimer()
	_, stop := start(b, relay.Config{Store: store, Routes: []relay.Route{{Name: "r", Topics: []string{"**"}, Publisher: publisher}}})
	<-done
	if err := stop(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
