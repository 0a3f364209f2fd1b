package pooler

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgstore"
)

// Statements with names belong to a session, so they cannot work through a pooler
// that does not keep them for its clients.
var needSession = []string{"cache_statement", "describe_exec"}

var everyMode = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

// odd is text that every layer could change.
const odd = "Müller's \\ \"order\" $1 ?\t€😀"

// Several connections through fewer ones to the server, in every mode of sending
// statements: what committed is in the log as it was written and nothing else is,
// and modes that need no session never fail.
func TestEnqueueInEveryMode(t *testing.T) {
	t.Parallel()
	for _, settings := range [][]string{{"default_pool_size=2"}, {"default_pool_size=2", "server_reset_query=DISCARD ALL", "server_reset_query_always=1"}} {
		db := pgtest.Database(t)
		b := newBouncer(t, db, settings...)
		owner := connect(t, db)
		if _, err := pgstore.Migrate(t.Context(), owner, pgstore.Options{Shards: 3}); err != nil {
			t.Fatal(err)
		}
		for _, mode := range everyMode {
			t.Run(mode+" "+settings[len(settings)-1], func(t *testing.T) {
				works := !slices.Contains(needSession, mode)
				e := enqueuer{t: t, topic: mode + settings[len(settings)-1], works: works}
				e.run(b.url("default_query_exec_mode=" + mode))
				e.check(owner)
			})
		}
	}
}

type enqueuer struct {
	t         *testing.T
	topic     string
	works     bool
	committed atomic.Int64
	last      atomic.Pointer[error] // of one that was not
}

// run enqueues in every way, from several goroutines.
func (e *enqueuer) run(url string) {
	pool := connect(e.t, url)
	db, err := sql.Open("pgx", url)
	if err != nil {
		e.t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(4)
	ctx := e.t.Context()
	ways := []func(m outbox.Message) error{
		func(m outbox.Message) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				w := outbox.NewWriter(pgstore.Pgx{})
				return errors.Join(w.LockKeys(ctx, tx, m.Key, "other"), w.Enqueue(ctx, tx, m))
			})
		},
		func(m outbox.Message) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			w := outbox.NewWriter(pgstore.SQL{})
			if err := errors.Join(w.LockKeys(ctx, tx, m.Key, "other"), w.Enqueue(ctx, tx, m)); err != nil {
				return err
			}
			return tx.Commit()
		},
		func(m outbox.Message) error {
			_, err := pool.Exec(ctx, `SELECT postrider.enqueue(topic => $1, payload => $2, key => $3, type => $4, headers => $5::text::json)`,
				m.Topic, m.Payload, m.Key, m.Type, `{"h":"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\t", `\t`).Replace(odd)+`"}`)
			return err
		},
		func(outbox.Message) error {
			_, err := pool.Exec(ctx, `SELECT postrider.lock_keys(VARIADIC $1::text[])`, []string{odd, "a"})
			return err
		},
	}
	var group sync.WaitGroup
	for i, way := range ways {
		for range 2 {
			group.Go(func() {
				for range testsize.Pick(8, 300) {
					err := way(outbox.Message{Topic: e.topic, Key: odd, Type: odd, Payload: []byte("\x00\xff'\\"), Headers: map[string]string{"h": odd}})
					switch {
					case err == nil && i < 3:
						e.committed.Add(1)
					case err != nil:
						e.last.Store(&err)
					}
				}
			})
		}
	}
	group.Wait()
}

func (e *enqueuer) check(db *pgxpool.Pool) {
	e.t.Helper()
	var n, well int64
	err := db.QueryRow(e.t.Context(), `SELECT count(*), count(*) FILTER (WHERE key = $2 AND type = $2 AND payload = '\x00ff275c' AND headers ->> 'h' = $2 AND shard = postrider.shard_of(key))
		FROM (SELECT *, 0 AS shard FROM postrider.log_0 UNION ALL SELECT *, 1 FROM postrider.log_1 UNION ALL SELECT *, 2 FROM postrider.log_2) AS log WHERE topic = $1`, e.topic, odd).Scan(&n, &well)
	if err != nil {
		e.t.Fatal(err)
	}
	if n != e.committed.Load() || well != n {
		e.t.Errorf("%d messages are in the log, %d of them as they were written; %d were committed", n, well, e.committed.Load())
	}
	last := e.last.Load()
	if last == nil {
		if !e.works {
			e.t.Log("it went well by chance")
		}
		return
	}
	if e.works {
		e.t.Errorf("enqueue: %v", *last)
	} else if pgErr, ok := errors.AsType[*pgconn.PgError](*last); !ok || !slices.Contains([]string{"26000", "42P05", "08P01", "25P02"}, pgErr.Code) {
		e.t.Errorf("enqueue: %v, want an error about a prepared statement", *last)
	}
}

func connect(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.WithoutCancel(t.Context()), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pool.Ping(t.Context()); err != nil {
		t.Fatal(fmt.Errorf("connect: %w", err))
	}
	return pool
}
