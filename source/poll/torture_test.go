package poll_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
)

// Every committed row is handed out and none that was rolled back, none twice
// without a kill, in order per key, whatever the writers do.
func TestRandomWritersAgainstKilledReaders(t *testing.T) {
	for _, inline := range []int{1000, 1} { // looked for in every read, or only with a reason
		t.Run(fmt.Sprintf("inline %d", inline), func(t *testing.T) {
			for range testsize.Pick(1, 20) {
				w := newWorld(t)
				w.inline = inline
				w.hostile = true
				if err := w.run(testsize.Pick(100, 400)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// world is one database with writers and a reader.
type world struct {
	tb      testing.TB
	seed    int64
	url     string
	pool    *pgxpool.Pool
	inline  int  // poll.Config.InlineGaps
	page    int  // poll.Config.PageSize
	kills   bool // the reader is killed now and then
	hostile bool // somebody holds a transaction id elsewhere in the cluster
	rewrite func(sql string) string
	counter atomic.Int64
}

const hotKeys = 5

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{tb: t, seed: testsize.Seed(t), url: pgtest.Database(t), kills: true, inline: 1000}
	pool, err := pgxpool.New(t.Context(), w.url+"&pool_max_conns=40")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w.pool = pool
	w.migrate()
	w.exec(`CREATE TABLE hot (key text PRIMARY KEY, n bigint NOT NULL DEFAULT 0)`)
	w.exec(`INSERT INTO hot (key) SELECT 'k' || i FROM generate_series(1, $1::int) AS i`, hotKeys)
	return w
}

func (w *world) migrate() {
	w.tb.Helper()
	if _, err := pgstore.Migrate(w.tb.Context(), w.pool, pgstore.Options{Shards: 1}); err != nil {
		w.tb.Fatal(err)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.tb.Helper()
	if _, err := w.pool.Exec(w.tb.Context(), sql, args...); err != nil {
		w.tb.Fatalf("%s: %v", sql, err)
	}
}

// run lets 8 writers commit or roll back that many transactions each while a
// reader reads, and returns the first broken promise.
func (w *world) run(transactions int) error {
	ctx, cancel := context.WithCancel(w.tb.Context())
	defer cancel()
	if w.hostile {
		stop := w.holdElsewhere(ctx)
		defer stop()
	}
	r := &reader{w: w, random: testsize.Rand(w.seed, "reader"), next: map[string]int64{}, times: map[uuid.UUID]int{}, settled: map[uuid.UUID]bool{}}
	readerDone := make(chan error, 1)
	writersDone := make(chan struct{})
	go func() { readerDone <- r.run(ctx, writersDone) }()

	var writers sync.WaitGroup
	failed := make(chan error, 8)
	for i := range 8 {
		writers.Go(func() {
			if err := w.write(ctx, testsize.Rand(w.seed, "writer "+strconv.Itoa(i)), transactions); err != nil {
				failed <- err
			}
		})
	}
	writers.Wait()
	close(writersDone)
	select {
	case err := <-failed:
		w.tb.Fatalf("seed %d: a writer: %v", w.seed, err)
	default:
	}
	if err := <-readerDone; err != nil {
		return fmt.Errorf("seed %d: %w", w.seed, err)
	}
	return nil
}

// holdElsewhere keeps a transaction with an id open in another database.
func (w *world) holdElsewhere(ctx context.Context) (stop func()) {
	w.tb.Helper()
	other, err := pgx.Connect(ctx, pgtest.Database(w.tb))
	if err != nil {
		w.tb.Fatal(err)
	}
	tx, err := other.Begin(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, `SELECT pg_current_xact_id()`)
	}
	if err != nil {
		w.tb.Fatal(err)
	}
	return func() { other.Close(context.WithoutCancel(ctx)) }
}

func (w *world) write(ctx context.Context, random *rand.Rand, transactions int) error {
	conn, err := pgx.Connect(ctx, w.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for range transactions {
		if err := w.writeOnce(ctx, conn, random); err != nil {
			return err
		}
	}
	return nil
}

// writeOnce is one transaction of a random shape.
func (w *world) writeOnce(ctx context.Context, conn *pgx.Conn, random *rand.Rand) error {
	if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
		return err
	}
	for range 1 + random.IntN(3) {
		var err error
		switch random.IntN(8) {
		case 0, 1, 2:
			err = w.enqueueHot(ctx, conn, random)
		case 3: // several rows in one statement
			_, err = conn.Exec(ctx, `INSERT INTO postrider.log_0 (id, topic, payload) VALUES
				(gen_random_uuid(), 't', ''), (gen_random_uuid(), 't', ''), (gen_random_uuid(), 't', '')`)
		case 4:
			_, err = conn.Exec(ctx, `INSERT INTO postrider.log_0 (id, topic, payload)
				SELECT gen_random_uuid(), 't', '' FROM generate_series(1, $1::int)`, 1+random.IntN(20))
		case 5:
			rows := make([][]any, 1+random.IntN(20))
			for i := range rows {
				rows[i] = []any{uuid.New(), "t", []byte{}}
			}
			_, err = conn.CopyFrom(ctx, pgx.Identifier{"postrider", "log_0"}, []string{"id", "topic", "payload"}, pgx.CopyFromRows(rows))
		case 6: // a savepoint that is rolled back, with what it enqueued
			if _, err = conn.Exec(ctx, "SAVEPOINT s"); err == nil {
				if err = w.enqueueHot(ctx, conn, random); err == nil {
					_, err = conn.Exec(ctx, "ROLLBACK TO SAVEPOINT s")
				}
			}
		case 7:
			err = pause(ctx, time.Duration(random.ExpFloat64()*float64(10*time.Millisecond)))
		}
		if err != nil {
			return err
		}
	}
	switch random.IntN(40) {
	case 0: // open for long
		if err := pause(ctx, time.Duration(testsize.Pick(300, 2000))*time.Millisecond); err != nil {
			return err
		}
	case 1, 2:
		return w.prepare(ctx, conn, random)
	}
	end := "COMMIT"
	if random.IntN(5) == 0 {
		end = "ROLLBACK"
	}
	_, err := conn.Exec(ctx, end)
	return err
}

// enqueueHot enqueues under a key whose row is locked, so that commit order and
// the order of enqueueing are one: n counts the committed messages of the key.
func (w *world) enqueueHot(ctx context.Context, conn *pgx.Conn, random *rand.Rand) error {
	key := fmt.Sprint("k", 1+random.IntN(hotKeys))
	var locked bool
	// Whoever holds one key and waits for another could deadlock: skip instead.
	err := conn.QueryRow(ctx, `SELECT true FROM hot WHERE key = $1 FOR UPDATE SKIP LOCKED`, key).Scan(&locked)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	for range 1 + random.IntN(3) {
		_, err := conn.Exec(ctx, `WITH h AS (UPDATE hot SET n = n + 1 WHERE key = $1 RETURNING n)
			SELECT postrider.enqueue('t', convert_to(n::text, 'UTF8'), $1) FROM h`, key)
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *world) prepare(ctx context.Context, conn *pgx.Conn, random *rand.Rand) error {
	name := fmt.Sprintf("'%s %d'", conn.Config().Database, w.counter.Add(1))
	if _, err := conn.Exec(ctx, "PREPARE TRANSACTION "+name); err != nil {
		return err
	}
	if err := pause(ctx, time.Duration(random.IntN(60))*time.Millisecond); err != nil {
		return err
	}
	end := "COMMIT PREPARED "
	if random.IntN(3) == 0 {
		end = "ROLLBACK PREPARED "
	}
	_, err := conn.Exec(ctx, end+name)
	return err
}

// pause is part of the load: a transaction that stays open.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// reader receives, settles, and is killed now and then.
type reader struct {
	w       *world
	random  *rand.Rand
	next    map[string]int64 // the last counter that came of each key
	times   map[uuid.UUID]int
	settled map[uuid.UUID]bool
	kills   int
}

func (r *reader) run(ctx context.Context, writersDone <-chan struct{}) error {
	for {
		done, err := r.lease(ctx, writersDone)
		if done || err != nil {
			return err
		}
		r.kills++
	}
}

// lease reads until a kill (false) or until everything is settled (true).
func (r *reader) lease(ctx context.Context, writersDone <-chan struct{}) (bool, error) {
	store, err := poll.New(poll.Config{Pool: rewriting{r.w.pool, r.w.rewrite}, InlineGaps: r.w.inline})
	if err != nil {
		return false, err
	}
	lease, err := store.Acquire(ctx, relay.Claim{Route: "route", Owner: "reader", TTL: time.Minute, Topics: []string{"**"}})
	if err != nil {
		return false, err
	}
	mine := map[int64]bool{}
	var unsettled []relay.Outcome
	quiet := time.Now()
	for {
		stop := r.w.kills && r.random.IntN(60) == 0
		receive, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		got, err := lease.Receive(receive, 1+r.random.IntN(200))
		cancel()
		if err != nil && receive.Err() == nil {
			return false, fmt.Errorf("receive: %w", err)
		}
		for _, d := range got {
			if mine[d.Seq] {
				return false, fmt.Errorf("number %d was handed out twice by one lease", d.Seq)
			}
			mine[d.Seq] = true
			if err := r.take(d); err != nil {
				return false, err
			}
			unsettled = append(unsettled, relay.Outcome{Delivery: d, State: outbox.StateSent})
			quiet = time.Now()
		}
		if stop {
			return false, nil
		}
		// Settle some, in any order, and sometimes nothing.
		r.random.Shuffle(len(unsettled), func(i, j int) { unsettled[i], unsettled[j] = unsettled[j], unsettled[i] })
		n := len(unsettled)
		if r.random.IntN(2) == 0 {
			n = r.random.IntN(n + 1)
		}
		if err := lease.Settle(ctx, unsettled[:n]); err != nil {
			return false, fmt.Errorf("settle: %w", err)
		}
		for _, o := range unsettled[:n] {
			r.settled[o.Delivery.Message.ID] = true
		}
		unsettled = unsettled[n:]

		select {
		case <-writersDone:
			missing, err := r.missing(ctx)
			if err != nil || len(missing) == 0 && len(unsettled) == 0 {
				return err == nil, err
			}
			if time.Since(quiet) > 5*time.Second && len(unsettled) == 0 {
				return false, fmt.Errorf("%d committed messages were not handed out, after %d kills: numbers %v", len(missing), r.kills, missing[:min(len(missing), 20)])
			}
		default:
		}
	}
}

// take checks one delivery.
func (r *reader) take(d relay.Delivery) error {
	m := d.Message
	if r.settled[m.ID] {
		return fmt.Errorf("number %d came again although it was settled", d.Seq)
	}
	r.times[m.ID]++
	if m.Key == "" || r.times[m.ID] > 1 {
		return nil
	}
	n, err := strconv.ParseInt(string(m.Payload), 10, 64)
	if err != nil {
		return fmt.Errorf("number %d of key %s has payload %q", d.Seq, m.Key, m.Payload)
	}
	if n != r.next[m.Key]+1 {
		return fmt.Errorf("message %d of key %s (number %d) came after message %d", n, m.Key, d.Seq, r.next[m.Key])
	}
	r.next[m.Key] = n
	return nil
}

// missing are the numbers of committed messages that did not come. A message
// that came and is not there is an error.
func (r *reader) missing(ctx context.Context) ([]int64, error) {
	rows, err := r.w.pool.Query(ctx, `SELECT seq, id FROM postrider.log_0 ORDER BY seq`)
	if err != nil {
		return nil, err
	}
	var seq int64
	var id uuid.UUID
	there := map[uuid.UUID]bool{}
	var missing []int64
	_, err = pgx.ForEachRow(rows, []any{&seq, &id}, func() error {
		there[id] = true
		if r.times[id] == 0 {
			missing = append(missing, seq)
		}
		return nil
	})
	for id := range r.times {
		if err == nil && !there[id] {
			err = fmt.Errorf("message %s was handed out although it was rolled back", id)
		}
	}
	return missing, err
}
