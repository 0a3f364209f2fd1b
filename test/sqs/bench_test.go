package sqs_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/test/internal/awsrig"
)

// BenchmarkPublish sends batches of 100 with four requests at a time, straight
// to the emulator.
func BenchmarkPublish(b *testing.B) {
	r := newRig(b)
	p := r.publisher(sqsbroker.PublisherConfig{Client: r.Queues, Queue: r.Queue("", nil)})
	msgs := awsrig.Orders(b, 100)
	for b.Loop() {
		for _, result := range p.Publish(b.Context(), msgs) {
			if result.Err != nil {
				b.Fatal(result.Err)
			}
		}
	}
	b.ReportMetric(float64(b.N*len(msgs))/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkConsume receives, handles and deletes 5000 messages with the
// default settings.
func BenchmarkConsume(b *testing.B) {
	r := newRig(b)
	queue := r.Queue("", nil)
	p := r.publisher(sqsbroker.PublisherConfig{Client: r.Queues, Queue: queue})
	msgs := awsrig.Orders(b, 5000)
	for b.Loop() {
		b.StopTimer()
		p.Publish(b.Context(), msgs)
		ctx, cancel := context.WithCancel(b.Context())
		var handled atomic.Int64
		c := r.Consumer(sqsbroker.ConsumerConfig{Client: r.Queues, Queue: queue})
		b.StartTimer()
		var wg sync.WaitGroup
		wg.Go(func() {
			err := c.Consume(ctx, func(context.Context, outbox.Message) error {
				if handled.Add(1) == int64(len(msgs)) {
					cancel()
				}
				return nil
			})
			if err != nil {
				b.Error(err)
			}
		})
		wg.Wait()
		cancel()
		if n := r.mustLeft(queue); n != 0 {
			b.Fatalf("%d messages are left", n)
		}
	}
	b.ReportMetric(float64(b.N*len(msgs))/b.Elapsed().Seconds(), "messages/s")
}
