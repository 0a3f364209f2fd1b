package memstore_test

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/memstore"
)

func ExampleNew() {
	store := memstore.New(memstore.Options{})
	writer := outbox.NewWriter(store)

	tx := store.Begin()
	defer tx.Rollback() //nolint:errcheck // it has ended if it was committed
	if err := writer.Enqueue(context.Background(), tx, outbox.Message{Topic: "orders", Payload: []byte("placed")}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("before the commit:", len(store.Messages()))
	if err := tx.Commit(); err != nil {
		fmt.Println(err)
	}
	fmt.Println("after it:", len(store.Messages()))
	// Output:
	// before the commit: 0
	// after it: 1
}
