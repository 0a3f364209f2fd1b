// Package contender holds what is measured beside each other: this project, its
// peers, and the statements that bound them all. Each keeps messages in tables of
// its own and hands them to a Sink, as it would to a broker.
package contender

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Contender is one way from a committed row to a publisher. Its methods may be
// called by several processes; a database holds one contender only.
type Contender interface {
	// Setup makes the tables in an empty database.
	Setup(ctx context.Context, db *pgxpool.Pool) error
	// Fill commits the messages of table Source, in their order.
	Fill(ctx context.Context, db *pgxpool.Pool) error
	// Reset leaves no messages behind.
	Reset(ctx context.Context, db *pgxpool.Pool) error
	// Open connects and returns what publishes to the sink until its context
	// ends, and then finishes what it has begun. Its end by the context is no
	// error.
	Open(ctx context.Context, o Options, sink *Sink) (run func(context.Context) error, err error)
}

// Options are what a run of a contender is told.
type Options struct {
	// URL of the database.
	URL string
	// Reader names who reads, where the messages stay: another reader begins
	// from the beginning. Contenders that take messages away do without.
	Reader string
	// Delay is what a publish of a batch takes.
	Delay time.Duration
	// After is how many messages of a table that nobody reads are left out.
	After int
	// Connections of a producer.
	Connections int
	// Times: note when each message comes.
	Times bool
	// Verify: report a message that overtakes an earlier one of its key, where
	// the contender promises an order.
	Verify bool
}

// Rereads is implemented by contenders that only note how far they have come,
// so that another Reader finds the messages again.
type Rereads interface{ Rereads() }

// Inserter is implemented by contenders that can enqueue one message within a
// transaction, as their users do.
type Inserter interface {
	Insert(ctx context.Context, db *pgxpool.Pool) (func(ctx context.Context, tx pgx.Tx, m Message) error, error)
}

// Keeper is implemented by contenders whose published rows stay in the table.
type Keeper interface {
	// FillSent commits the messages of table Source as ones that the reader has
	// published.
	FillSent(ctx context.Context, db *pgxpool.Pool, reader string) error
}

// Staller is implemented by contenders that may publish nothing while an older
// transaction is open.
type Staller interface{ Stalls() bool }

// Message is one message to be enqueued.
type Message struct {
	N       int // its number
	Key     string
	Payload []byte
}

// NewMessage makes a message such as Source does.
func NewMessage(n int) Message {
	m := Message{N: n, Key: fmt.Sprintf("order-%d", (n*7919)%keys)}
	m.Payload = fmt.Appendf(make([]byte, 0, PayloadSize), `{"n":"%s","orderId":"%s","note":"`, m.number(), m.Key)
	for len(m.Payload) < PayloadSize-2 {
		m.Payload = append(m.Payload, '.')
	}
	m.Payload = append(m.Payload, `"}`...)
	return m
}

// number is the message's number as payloads have it.
func (m Message) number() string { return fmt.Sprintf("%09d", m.N) }

// Entry is a contender with what is said about it.
type Entry struct {
	// ID names it on the command line and names its database.
	ID string
	// Name is for tables.
	Name string
	// Remark says what it promises otherwise than the others.
	Remark string
	// Module is the library's path, or empty.
	Module    string
	Contender Contender
}

// What is said about contenders of one kind.
const (
	watermillRemark      = "hands out one by one, in one order for all; waits for older transactions of the whole cluster"
	watermillQueueRemark = "hands out one by one; deletes; its transaction is open while publishing; a late commit comes out of order"
	skipLockedRemark     = "written here, for libraries that the module proxy lacks: no order between relays, no retry, transaction open while publishing"
	riverRemark          = "a job queue: no order; a row of state is kept for every job; 2000 workers, fetch pause 2 ms"
	gueRemark            = "a job queue: no order; a transaction for every job; 16 workers; poll strategy by run_at, since its default sorts the backlog for every job"
)

// Entries are all contenders.
var Entries = []Entry{
	{"select", "paged SELECT", "the limit: pages of 1000, scanned into a struct; notes nothing, misses late commits", "", Paged{}},
	{"select_raw", "paged SELECT, not decoded", "the same with columns left as bytes", "", Paged{Raw: true}},
	{"postrider", "postrider", "order per key, retries, relays share; default settings", "", Postrider{}},
	{"watermill_100", "watermill-sql, batch 100", watermillRemark, watermillModule, Watermill{Batch: 100}},
	{"watermill_1000", "watermill-sql, batch 1000", watermillRemark, watermillModule, Watermill{Batch: 1000}},
	{"watermill_5000", "watermill-sql, batch 5000", watermillRemark, watermillModule, Watermill{Batch: 5000}},
	{"watermill_queue_100", "watermill-sql queue, batch 100", watermillQueueRemark, watermillModule, Watermill{Batch: 100, Queue: true}},
	{"watermill_queue_1000", "watermill-sql queue, batch 1000", watermillQueueRemark, watermillModule, Watermill{Batch: 1000, Queue: true}},
	{"watermill_queue_5000", "watermill-sql queue, batch 5000", watermillQueueRemark, watermillModule, Watermill{Batch: 5000, Queue: true}},
	{"river", "river", riverRemark, riverModule, River{}},
	{"gue", "gue", gueRemark, gueModule, Gue{}},
	{"row_by_row", "row by row", "the poller of articles without its pause of a second: 10 rows FOR UPDATE SKIP LOCKED, an UPDATE for each", "", RowByRow{}},
	{"skip_locked_1000", "SKIP LOCKED, DELETE, batch 1000", skipLockedRemark, "", SkipLocked{Batch: 1000}},
	{"skip_locked_2000", "SKIP LOCKED, DELETE, batch 2000", skipLockedRemark, "", SkipLocked{Batch: 2000}},
	{"skip_locked_5000", "SKIP LOCKED, DELETE, batch 5000", skipLockedRemark, "", SkipLocked{Batch: 5000}},
	{"skip_locked_10000", "SKIP LOCKED, DELETE, batch 10000", skipLockedRemark, "", SkipLocked{Batch: 10_000}},
}

// Polling are settings of contenders that matter to latency alone.
var Polling = []Entry{
	{"watermill_poll", "watermill-sql, polls every 5 ms", "its default is every second; " + watermillRemark, watermillModule, Watermill{Batch: 100, Poll: 5 * time.Millisecond}},
}

// Find returns the entry of an id.
func Find(id string) (Entry, error) {
	for _, list := range [][]Entry{Entries, Polling, Producers} {
		for _, e := range list {
			if e.ID == id {
				return e, nil
			}
		}
	}
	return Entry{}, fmt.Errorf("no contender is called %q", id)
}

// PayloadSize is how many bytes a message carries.
const PayloadSize = 200

// keys is how many different keys messages have.
const keys = 10_000

// sourceSQL makes the messages that all contenders are filled from. Keys repeat
// by chance, as customers do. The payload is JSON, since some take nothing else.
const sourceSQL = `CREATE UNLOGGED TABLE IF NOT EXISTS bench_source (n bigint, id uuid, key text, payload text)`

const fillSourceSQL = `INSERT INTO bench_source
	SELECT n, gen_random_uuid(), 'order-' || (hashint8(n) & 2147483647) %% %[1]d,
		rpad('{"n":"' || lpad(n::text, 9, '0') || '","orderId":"order-' || (hashint8(n) & 2147483647) %% %[1]d || '","note":"', %[2]d - 2, 'postrider ') || '"}'
	FROM generate_series($1::bigint, $2::bigint) AS n`

// Source fills the table bench_source with n messages, numbered from first.
func Source(ctx context.Context, db *pgxpool.Pool, first, n int) error {
	if _, err := db.Exec(ctx, sourceSQL); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, "TRUNCATE bench_source"); err != nil {
		return err
	}
	_, err := db.Exec(ctx, fmt.Sprintf(fillSourceSQL, keys, PayloadSize), first, first+n-1)
	return err
}

// exec runs statements in one transaction.
func exec(ctx context.Context, db *pgxpool.Pool, statements ...string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, statement := range statements {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}

// connect opens a pool whose connections are there already.
func connect(ctx context.Context, url string, connections int, adapt ...func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(connections)
	for _, f := range adapt {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return nil, err
	}
	held := make([]*pgxpool.Conn, 0, connections)
	for range connections {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			pool.Close()
			return nil, err
		}
		held = append(held, conn)
	}
	for _, conn := range held {
		conn.Release()
	}
	return pool, nil
}

// idlePause of the pollers that are written here.
const idlePause = 5 * time.Millisecond

// poller takes batches until its context ends, with a pause when there is nothing.
func poller(db *pgxpool.Pool, sink *Sink, batch func(context.Context, *pgxpool.Pool, *Sink) (int, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		defer db.Close()
		for ctx.Err() == nil {
			n, err := batch(context.WithoutCancel(ctx), db, sink)
			if err != nil {
				return err
			}
			if n == 0 {
				pause(ctx, idlePause)
			}
		}
		return nil
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
