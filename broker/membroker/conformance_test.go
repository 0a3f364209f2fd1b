package membroker_test

import (
	"context"
	"testing"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/conformance"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
)

func TestPublisherConforms(t *testing.T) { conformance.Publisher(t, harness) }
func TestConsumerConforms(t *testing.T)  { conformance.Consumer(t, harness) }

func harness(testing.TB) conformance.BrokerHarness {
	broker := membroker.New()
	hanging := false
	publisher := &membroker.Publisher{Broker: broker, Queue: "queue", Before: func(ctx context.Context, _ outbox.Message) error {
		if hanging {
			<-ctx.Done()
			return outbox.TimedOut(ctx.Err())
		}
		return nil
	}}
	return conformance.BrokerHarness{
		Publisher: publisher,
		Consumer: func(testing.TB) inbox.Consumer {
			return &membroker.Consumer{Broker: broker, Queue: "queue", Concurrency: 8, Redelivery: 10 * time.Millisecond}
		},
		Left: func(context.Context) (int, error) { return broker.Depth("queue"), nil },
		Hang: func() func() { hanging = true; return func() { hanging = false } },
	}
}
