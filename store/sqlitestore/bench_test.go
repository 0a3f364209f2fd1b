package sqlitestore_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlitestore"
)

func benchMessages(n int) []outbox.Message {
	msgs := make([]outbox.Message, n)
	for i := range msgs {
		msgs[i] = outbox.Message{Topic: "orders", Key: "k", Type: "order.created", Payload: make([]byte, 200)}
	}
	return msgs
}

// BenchmarkEnqueue commits one message in a transaction, beside nothing else.
func BenchmarkEnqueue(b *testing.B) {
	db := open(b, filepath.Join(b.TempDir(), "outbox.db"), sqlitestore.Options{}).DB()
	writer := outbox.NewWriter(sqlitestore.SQL{})
	msgs := benchMessages(1)
	for b.Loop() {
		enqueueTx(b, db, writer, msgs)
	}
}

func enqueueTx(b *testing.B, db *sql.DB, writer *outbox.Writer[*sql.Tx], msgs []outbox.Message) {
	b.Helper()
	tx, err := db.BeginTx(b.Context(), nil)
	if err == nil {
		err = writer.Enqueue(b.Context(), tx, msgs...)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkDrain receives pages of 500 and settles them, with a backlog of
// 100,000 messages of 200 bytes; ns/op is for one message. Run it with
// -benchtime 300000x.
func BenchmarkDrain(b *testing.B) {
	const backlog = 100_000
	s := open(b, filepath.Join(b.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1})
	enqueueTx(b, s.DB(), outbox.NewWriter(sqlitestore.SQL{}), benchMessages(backlog))
	var lease relay.Lease
	left, route := 0, 0
	b.ResetTimer()
	for n := 0; n < b.N; {
		if left == 0 {
			b.StopTimer()
			route++
			c := claim
			c.Route = string(rune('a' + route))
			var err error
			if lease, err = s.Acquire(b.Context(), c); err != nil {
				b.Fatal(err)
			}
			left = backlog
			b.StartTimer()
		}
		got, err := lease.Receive(b.Context(), 500)
		if err != nil {
			b.Fatal(err)
		}
		outcomes := make([]relay.Outcome, len(got))
		for i, d := range got {
			outcomes[i] = relay.Outcome{Delivery: d, State: outbox.StateSent, Attempts: 1}
		}
		if err := lease.Settle(b.Context(), outcomes); err != nil {
			b.Fatal(err)
		}
		n += len(got)
		left -= len(got)
	}
}
