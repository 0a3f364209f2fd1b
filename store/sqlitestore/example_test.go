package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlitestore"
)

// exampleFile is a file in a folder of its own.
func exampleFile() (path string, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	return filepath.Join(dir, "shop.db"), func() { _ = os.RemoveAll(dir) }
}

// An order and its event commit together; a lease hands the event out.
func Example() {
	path, remove := exampleFile()
	defer remove()
	ctx := context.Background()
	store, err := sqlitestore.Open(ctx, path, sqlitestore.Options{Shards: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	db := store.DB()
	if _, err := db.ExecContext(ctx, "CREATE TABLE orders (id TEXT PRIMARY KEY, amount INTEGER NOT NULL)"); err != nil {
		log.Fatal(err)
	}

	writer := outbox.NewWriter(sqlitestore.SQL{})
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ('o1', 4999)"); err != nil {
		log.Fatal(err)
	}
	err = writer.Enqueue(ctx, tx, outbox.Message{
		Topic: "orders", Key: "o1", Type: "order.created", Payload: []byte(`{"orderId":"o1"}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}

	// What package relay does with a store:
	lease, err := store.Acquire(ctx, relay.Claim{Route: "orders", Owner: "example", TTL: claim.TTL, Topics: []string{"**"}})
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Close(ctx)
	got, err := lease.Receive(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range got {
		fmt.Println(d.Message.Type, string(d.Message.Payload))
	}
	// Output: order.created {"orderId":"o1"}
}

// An application that has a database file already adds Postrider's tables to it.
func ExampleMigrate() {
	path, remove := exampleFile()
	defer remove()
	ctx := context.Background()
	db, err := sql.Open("sqlite", sqlitestore.DSN(path))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := sqlitestore.Migrate(ctx, db, sqlitestore.Options{}); err != nil {
		log.Fatal(err)
	}
	v, err := sqlitestore.Status(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(v.Shards, "shards,", len(v.Pending), "migrations pending")
	// Output: 4 shards, 0 migrations pending
}

// A message that comes twice has its effect once.
func ExampleInbox() {
	path, remove := exampleFile()
	defer remove()
	ctx := context.Background()
	store, err := sqlitestore.Open(ctx, path, sqlitestore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	handle := inbox.Once(sqlitestore.Inbox{DB: store.DB()}, "statistics",
		func(ctx context.Context, tx *sql.Tx, m outbox.Message) error {
			fmt.Println("counted", m.Type) // with tx, in the tables of this database
			return nil
		})
	id, err := outbox.NewID()
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if err := handle(ctx, outbox.Message{ID: id, Type: "order.created"}); err != nil {
			log.Fatal(err)
		}
	}
	// Output: counted order.created
}
