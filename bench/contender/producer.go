package contender

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgstore"
)

// Producer is an order service: each connection commits one order after the
// other, in transactions of begin, insert, perhaps enqueue, commit. What it
// commits counts as published.
type Producer struct {
	// Enqueue is how the message is written; empty: no message.
	Enqueue Enqueue
}

// Enqueue is a way to write a message in the order's transaction.
type Enqueue string

const (
	// EnqueueBare inserts into a table that has nothing but a primary key.
	EnqueueBare Enqueue = "bare"
	// EnqueueWriter uses the Writer of package outbox on pgstore.Pgx.
	EnqueueWriter Enqueue = "writer"
	// EnqueueFunction calls the SQL function that migrate makes.
	EnqueueFunction Enqueue = "function"
)

// Producers are the order services that are compared.
var Producers = []Entry{
	{"produce_order", "order alone", "no message", "", Producer{}},
	{"produce_bare", "order + bare table", "a table with one index, its primary key", "", Producer{Enqueue: EnqueueBare}},
	{"produce_writer", "order + postrider's Writer", "outbox.Writer on pgstore.Pgx", "", Producer{Enqueue: EnqueueWriter}},
	{"produce_function", "order + postrider.enqueue()", "the SQL function, called by hand", "", Producer{Enqueue: EnqueueFunction}},
}

const (
	ordersTable = `CREATE TABLE orders (
		id           uuid        PRIMARY KEY,
		customer_id  text        NOT NULL,
		amount_cents bigint      NOT NULL,
		created_at   timestamptz NOT NULL DEFAULT clock_timestamp())`
	bareTable = `CREATE TABLE bare_outbox (
		seq          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		id           uuid        NOT NULL,
		created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
		topic        text        NOT NULL,
		key          text        NOT NULL,
		type         text        NOT NULL,
		content_type text        NOT NULL DEFAULT 'application/json',
		headers      json,
		payload      bytea       NOT NULL)`

	insertOrderSQL     = `INSERT INTO orders (id, customer_id, amount_cents) VALUES ($1, $2, $3)`
	insertBareSQL      = `INSERT INTO bare_outbox (id, topic, key, type, payload) VALUES ($1, $2, $3, $4, $5)`
	enqueueFunctionSQL = `SELECT postrider.enqueue($1, $2, $3, $4)`
)

// Setup makes the table of orders and the outbox.
func (p Producer) Setup(ctx context.Context, db *pgxpool.Pool) error {
	if err := exec(ctx, db, ordersTable); err != nil {
		return err
	}
	switch p.Enqueue {
	case EnqueueBare:
		return exec(ctx, db, bareTable)
	case EnqueueWriter, EnqueueFunction:
		return Postrider{}.Setup(ctx, db)
	}
	return nil
}

// Fill does nothing: a producer needs no messages.
func (Producer) Fill(context.Context, *pgxpool.Pool) error { return nil }

// Reset empties the tables.
func (p Producer) Reset(ctx context.Context, db *pgxpool.Pool) error {
	if err := exec(ctx, db, "TRUNCATE orders"); err != nil {
		return err
	}
	switch p.Enqueue {
	case EnqueueBare:
		return exec(ctx, db, "TRUNCATE bare_outbox")
	case EnqueueWriter, EnqueueFunction:
		return Postrider{}.Reset(ctx, db)
	}
	return nil
}

// Open connects.
func (p Producer) Open(ctx context.Context, o Options, sink *Sink) (func(context.Context) error, error) {
	db, err := connect(ctx, o.URL, o.Connections)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		defer db.Close()
		var (
			wait   sync.WaitGroup
			number atomic.Int64
			mu     sync.Mutex
			errs   []error
		)
		for range o.Connections {
			wait.Go(func() {
				err := p.produce(ctx, db, &number, sink)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		wait.Wait()
		return errors.Join(errs...)
	}, nil
}

// produce commits orders on one connection until ctx ends.
func (p Producer) produce(ctx context.Context, db *pgxpool.Pool, number *atomic.Int64, sink *Sink) error {
	finish := context.WithoutCancel(ctx)
	conn, err := db.Acquire(finish)
	if err != nil {
		return err
	}
	defer conn.Release()
	writer := outbox.NewWriter(pgstore.Pgx{})
	for ctx.Err() == nil {
		m := NewMessage(int(number.Add(1) - 1))
		err := pgx.BeginFunc(finish, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(finish, insertOrderSQL, uuid.New(), "c1", 4999); err != nil {
				return err
			}
			return p.enqueue(finish, tx, writer, m)
		})
		if err != nil {
			return err
		}
		sink.Mark(m.N)
		sink.Batch(1)
	}
	return nil
}

func (p Producer) enqueue(ctx context.Context, tx pgx.Tx, writer *outbox.Writer[pgx.Tx], m Message) (err error) {
	switch p.Enqueue {
	case EnqueueBare:
		_, err = tx.Exec(ctx, insertBareSQL, uuid.New(), "orders", m.Key, "order.created", m.Payload)
	case EnqueueWriter:
		err = writer.Enqueue(ctx, tx, outbox.Message{Topic: "orders", Key: m.Key, Type: "order.created", Payload: m.Payload})
	case EnqueueFunction:
		_, err = tx.Exec(ctx, enqueueFunctionSQL, "orders", m.Payload, m.Key, "order.created")
	}
	return err
}
