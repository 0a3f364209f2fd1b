package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgstore"
)

// committingSQL counts the backends that are in the middle of their commit, and
// those that queue for a lock.
const committingSQL = `SELECT count(*) FILTER (WHERE wait_event = 'SyncRep'), count(*) FILTER (WHERE wait_event_type = 'Lock')
	FROM pg_catalog.pg_stat_activity`

// endCommitsSQL ends their wait for the standby.
const endCommitsSQL = `SELECT pg_cancel_backend(pid) FROM pg_catalog.pg_stat_activity WHERE wait_event = 'SyncRep'`

// Whoever enqueues keeps nobody waiting, neither while its transaction is open
// nor while it commits. The server's commits wait here for a standby that does
// not exist, with their locks: 64 transactions that have enqueued under one key
// have to come to that point all together. (One that notified would not: NOTIFY
// takes a lock of the whole server at the commit.)
func TestEnqueueingDoesNotSerialiseCommits(t *testing.T) {
	const writers = 64
	server := pgtest.Server(t, "synchronous_standby_names=nobody")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pool, err := pgxpool.New(ctx, server.URL("postgres")+fmt.Sprintf("&pool_max_conns=%d&synchronous_commit=local", writers+2))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pgstore.Migrate(ctx, pool, pgstore.Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	for name, enqueue := range map[string]func(tx pgx.Tx) error{
		"Writer": func(tx pgx.Tx) error {
			return outbox.NewWriter(pgstore.Pgx{}).Enqueue(ctx, tx, outbox.Message{Topic: "t", Key: "k"})
		},
		"function": func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT postrider.enqueue('t', '', 'k')`)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var transactions []pgx.Tx
			for range writers {
				tx, err := pool.Begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback(context.WithoutCancel(ctx))
				if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '10s'`); err != nil {
					t.Fatal(err)
				}
				if err := enqueue(tx); err != nil {
					t.Fatalf("beside %d that have enqueued: %v", len(transactions), err)
				}
				transactions = append(transactions, tx)
			}
			errs := make(chan error, writers)
			for _, tx := range transactions {
				go func() { errs <- tx.Commit(ctx) }()
			}
			var together, queueing int
			for end := time.Now().Add(10 * time.Second); together < writers && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				if err := pool.QueryRow(ctx, committingSQL).Scan(&together, &queueing); err != nil {
					t.Fatal(err)
				}
			}
			if together != writers {
				t.Errorf("%d of %d commit at the same time, %d queue for a lock", together, writers, queueing)
			}
			for ended := 0; ended < writers; {
				select {
				case err := <-errs:
					if ended++; err != nil {
						t.Error(err)
					}
				case <-time.After(5 * time.Millisecond):
					if _, err := pool.Exec(ctx, endCommitsSQL); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}
