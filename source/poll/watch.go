package poll

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store/pgstore"
)

// watch asks for the tails of all shards in one statement, for all leases
// together, as seldom as the adaptive interval allows. It has no goroutine of
// its own: whichever lease waits first asks for the others too.
type watch struct {
	db       pgstore.DB
	sql      string
	min, max time.Duration

	mu       sync.Mutex
	tokens   map[uuid.UUID]struct{}
	call     *watchCall
	last     time.Time
	interval time.Duration
	tails    map[int]int64
}

type watchCall struct {
	done chan struct{}
	tick tick
	err  error
}

// tick is what one statement saw.
type tick struct {
	tails map[int]int64
	// files tell one sequence from another: ALTER SEQUENCE, TRUNCATE … RESTART
	// IDENTITY and CREATE give one a new file. The server's start is in it, for one
	// that took another's place, with a dump of it, behind a pooler.
	files map[int]int64
	began time.Time // before the statement was sent
	// suspect: a lease's mark is missing, so a crash may have lost commits.
	suspect bool
}

const marksSQL = ` UNION ALL SELECT -1, count(*) FROM %s WHERE token = ANY ($1::text[]::uuid[])`

// filesSQL tells each shard's file as shard -2, -3 and so on.
const filesSQL = ` UNION ALL SELECT -2 - %d, pg_relation_filenode('%s'::regclass)::bigint # (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint`

func newWatch(db pgstore.DB, schema pgstore.Schema, shards int, min, max time.Duration) *watch {
	all := make([]int, shards)
	for i := range all {
		all[i] = i
	}
	sql := pgstore.TailsSQL(schema, all) + fmt.Sprintf(marksSQL, schema.Table("mark"))
	for _, shard := range all {
		sql += fmt.Sprintf(filesSQL, shard, strings.ReplaceAll(schema.LogSequence(shard), "'", "''"))
	}
	return &watch{db: db, min: min, max: max, interval: min, tokens: map[uuid.UUID]struct{}{}, sql: sql}
}

func (w *watch) enter(token uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens[token] = struct{}{}
}

func (w *watch) leave(token uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.tokens, token)
}

// next waits for the next statement to end and returns what it saw.
func (w *watch) next(ctx context.Context) (tick, error) {
	for {
		w.mu.Lock()
		call := w.call
		if call == nil {
			call = &watchCall{done: make(chan struct{})}
			w.call = call
			w.mu.Unlock()
			call.tick, call.err = w.ask(ctx)
			w.mu.Lock()
			w.call = nil
			w.mu.Unlock()
			close(call.done)
			return call.tick, call.err
		}
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return tick{}, ctx.Err()
		case <-call.done:
		}
		// The one that asked may have been told to stop; its end is not ours.
		if !errors.Is(call.err, context.Canceled) {
			return call.tick, call.err
		}
	}
}

func (w *watch) ask(ctx context.Context) (tick, error) {
	w.mu.Lock()
	wait := w.interval - time.Since(w.last)
	w.mu.Unlock()
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return tick{}, ctx.Err()
		case <-timer.C:
		}
	}
	w.mu.Lock()
	tokens := make([]string, 0, len(w.tokens))
	for token := range w.tokens {
		tokens = append(tokens, token.String())
	}
	w.mu.Unlock()

	t := tick{tails: make(map[int]int64), files: make(map[int]int64), began: time.Now()}
	marks := int64(-1)
	rows, err := w.db.Query(ctx, w.sql, tokens)
	if err == nil {
		var shard int
		var n int64
		_, err = pgx.ForEachRow(rows, []any{&shard, &n}, func() error {
			switch {
			case shard >= 0:
				t.tails[shard] = n
			case shard == -1:
				marks = n
			default:
				t.files[-2-shard] = n
			}
			return nil
		})
	}
	if err != nil {
		if ctx.Err() != nil {
			return tick{}, ctx.Err()
		}
		return tick{}, fmt.Errorf("poll the log: %w", err)
	}
	t.suspect = marks < int64(len(tokens))

	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = time.Now()
	if w.moved(t.tails) {
		w.interval = w.min
	} else {
		w.interval = min(w.max, 2*w.interval)
	}
	w.tails = t.tails
	return t, nil
}

func (w *watch) moved(tails map[int]int64) bool {
	for shard, tail := range tails {
		if tail != w.tails[shard] {
			return true
		}
	}
	return false
}
