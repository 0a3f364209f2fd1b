package membroker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/outbox"
)

func ExampleNew() {
	broker := membroker.New()
	publisher := &membroker.Publisher{Broker: broker}
	results := publisher.Publish(context.Background(), []outbox.Message{{Topic: "orders", Payload: []byte("placed")}})

	ctx, stop := context.WithCancel(context.Background())
	consumer := &membroker.Consumer{Broker: broker, Queue: "orders"}
	err := consumer.Consume(ctx, func(_ context.Context, m outbox.Message) error {
		fmt.Println(string(m.Payload))
		stop()
		return nil
	})
	fmt.Println(results[0].Err, err)
	// Output:
	// placed
	// <nil> <nil>
}

func TestSubscriptions(t *testing.T) {
	broker := membroker.New()
	for _, queue := range []string{"mail", "search", "mail"} {
		broker.Subscribe("orders", queue)
	}
	publisher := &membroker.Publisher{Broker: broker}
	publisher.Publish(t.Context(), []outbox.Message{{Topic: "orders"}, {Topic: "other"}})
	for queue, want := range map[string]int{"mail": 1, "search": 1, "orders": 0, "other": 1} {
		if got := len(broker.Messages(queue)); got != want {
			t.Errorf("queue %s has %d messages, want %d", queue, got, want)
		}
	}
}

func TestHooks(t *testing.T) {
	broker, refusal, loss := membroker.New(), errors.New("refused"), errors.New("lost")
	publisher := &membroker.Publisher{
		Broker: broker, Queue: "q",
		Before: func(_ context.Context, m outbox.Message) error {
			if m.Type == "refuse" {
				return refusal
			}
			return nil
		},
		After: func(_ context.Context, m outbox.Message) error {
			if m.Type == "lose" {
				return loss
			}
			return nil
		},
	}
	results := publisher.Publish(t.Context(), []outbox.Message{{Type: "refuse"}, {Type: "lose"}, {Type: "accept"}})
	if results[0].Err != refusal || results[1].Err != loss || results[2].Err != nil || results[2].BrokerID == "" {
		t.Errorf("results %+v", results)
	}
	if got := broker.Messages("q"); len(got) != 2 || got[0].Type != "lose" || got[1].Type != "accept" {
		t.Errorf("accepted %+v", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := publisher.Publish(ended, []outbox.Message{{}})[0].Err; outbox.ClassOf(err) != outbox.ClassUnavailable {
		t.Errorf("after the context's end: %v", err)
	}
}

// A message whose handler fails, or panics, comes again after a while, and
// ends among the dead letters.
func TestRedelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := membroker.New()
		publisher := &membroker.Publisher{Broker: broker, Queue: "q"}
		publisher.Publish(t.Context(), []outbox.Message{{Type: "bad"}, {Type: "good"}, {Type: "later"}})
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		tries, begin := make(map[string][]time.Duration), time.Now()
		done := make(chan error)
		go func() {
			c := &membroker.Consumer{Broker: broker, Queue: "q", Redelivery: time.Minute, MaxReceives: 3, DeadLetters: "dead"}
			done <- c.Consume(ctx, func(_ context.Context, m outbox.Message) error {
				mu.Lock()
				defer mu.Unlock()
				tries[m.Type] = append(tries[m.Type], time.Since(begin))
				switch {
				case m.Type == "bad":
					panic("cannot read it")
				case m.Type == "later" && len(tries["later"]) == 1:
					return errors.New("not yet")
				}
				return nil
			})
		}()
		time.Sleep(time.Hour)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for name, want := range map[string][]time.Duration{
			"good": {0}, "later": {0, time.Minute}, "bad": {0, time.Minute, 2 * time.Minute},
		} {
			if !slices.Equal(tries[name], want) {
				t.Errorf("%s was handled at %v, want %v", name, tries[name], want)
			}
		}
		if broker.Depth("q") != 0 || broker.Depth("dead") != 1 || broker.Messages("dead")[0].Type != "bad" {
			t.Errorf("%d left, %d dead", broker.Depth("q"), broker.Depth("dead"))
		}
	})
}

func TestConsumerProblemsAreReportedTogether(t *testing.T) {
	c := &membroker.Consumer{Concurrency: -1, MaxReceives: 1}
	err := c.Consume(t.Context(), nil)
	if joined, ok := errors.Unwrap(err).(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 3 {
		t.Errorf("%v", err)
	}
}
