package sqs_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// A route to sqs://{topic} with ten queues, one of which never answers: the
// others get everything, though that one has more messages than the relay may
// have in hand. Once it answers it gets its own, each once.
func TestOneQueueOfTenHangs(t *testing.T) {
	r := newRig(t)
	const n, room = 300, 200
	queues := make([]string, 10)
	for i := range queues {
		queues[i] = r.Queue("", nil)
	}
	hanging := queues[3]
	release := hang(r, hanging)
	store := memstore.New(memstore.Options{})
	relays, stop := relayTo(t, store, r.publisher(sqsbroker.PublisherConfig{Queue: "{topic}"}), room)

	var want []outbox.Message
	for i := range n {
		page := make([]outbox.Message, len(queues))
		for j, queue := range queues {
			page[j] = outbox.Message{Topic: queue, Key: fmt.Sprint(queue, i%20), Payload: fmt.Appendf(nil, `{"n":%d}`, i)}
		}
		tx := store.Begin()
		if err := outbox.NewWriter(store).Enqueue(t.Context(), tx, page...); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		want = append(want, page[0])
	}
	for _, queue := range queues {
		if queue != hanging {
			until(t, "everything is in the other queues", func() bool { return r.mustLeft(queue) == n })
		}
	}
	until(t, "the figures name the queue", func() bool {
		s := relays.Stats().Routes[0]
		return s.DestinationsAway == 1 && s.Destinations[0].Name == hanging && strings.Contains(s.Destinations[0].Error, hanging)
	})
	if left := r.mustLeft(hanging); left != 0 {
		t.Errorf("%d messages are in the queue that hangs", left)
	}
	release()
	until(t, "everything is in the queue that hung", func() bool { return r.mustLeft(hanging) >= n })
	if s := relays.Stats().Routes[0]; s.Retried+s.Failed > 0 || s.Pending == 0 {
		t.Errorf("stats %+v", s)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, queue := range queues {
		r.Once(queue, want...)
	}
}

// hang lets the proxy answer nothing about a queue's messages.
func hang(r *rig, queue string) (release func()) {
	return r.Proxy.Add(awsproxy.Rule{Target: "SendMessageBatch", Containing: queue, Fault: awsproxy.Hang()})
}

// relayTo runs a relay with that much room in hand.
func relayTo(t *testing.T, store relay.Store, publisher outbox.Publisher, room int) (*relay.Relay, func() error) {
	t.Helper()
	r, err := relay.New(relay.Config{
		Store: store, Logger: slog.New(slog.DiscardHandler), Limits: relay.Limits{InFlightMessages: room},
		Routes: []relay.Route{{Name: "queues", Topics: []string{"**"}, Publisher: publisher, PublishTimeout: 2 * time.Second}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(cancel)
	return r, func() error {
		cancel()
		return <-done
	}
}
