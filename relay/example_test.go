package relay_test

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// A relay between a store and a broker in memory. With a database only the
// store and the publisher are others.
func ExampleNew() {
	store, broker := memstore.New(memstore.Options{}), membroker.New()
	r, err := relay.New(relay.Config{
		Store: store,
		Routes: []relay.Route{{
			Name: "orders", Topics: []string{"orders"},
			Publisher: &membroker.Publisher{Broker: broker},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()

	tx := store.Begin()
	err = outbox.NewWriter(store).Enqueue(ctx, tx, outbox.Message{Topic: "orders", Key: "4711", Payload: []byte("placed")})
	if err != nil {
		fmt.Println(err)
	}
	if err := tx.Commit(); err != nil {
		fmt.Println(err)
	}
	for len(broker.Messages("orders")) == 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	fmt.Println(<-done, string(broker.Messages("orders")[0].Payload), r.Stats().Routes[0].Sent)
	// Output: <nil> placed 1
}
