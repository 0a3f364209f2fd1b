package relay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// counter acknowledges everything, and tells when it has seen enough.
type counter struct {
	left atomic.Int64
	done chan struct{}
}

func (c *counter) Publish(_ context.Context, msgs []outbox.Message) []outbox.Result {
	if n := int64(len(msgs)); c.left.Add(-n) <= 0 && c.left.Load() > -n {
		close(c.done)
	}
	return make([]outbox.Result, len(msgs))
}

// BenchmarkRelay measures the relay's own work: memory on both sides.
func BenchmarkRelay(b *testing.B) {
	for _, keys := range []int{0, 1, 100, 1 << 30} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			store := memstore.New(memstore.Options{})
			tx := store.Begin()
			payload := make([]byte, 200)
			msgs := make([]outbox.Message, 0, 1000)
			for i := range b.N {
				m := outbox.Message{Topic: "orders", Payload: payload, ID: [16]byte{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24), 1}}
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
			c := &counter{done: make(chan struct{})}
			c.left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			_, stop := start(b, relay.Config{Store: store, Routes: []relay.Route{{Name: "r", Topics: []string{"**"}, Publisher: c}}})
			<-c.done
			if err := stop(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}
