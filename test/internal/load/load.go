package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgstore"
)

// Message is number n of a key, counted from 1, of at least 16 bytes. The zero
// time: its delay does not count.
func Message(key string, n int, enqueued time.Time, size int) outbox.Message {
	payload := make([]byte, max(size, 16))
	binary.BigEndian.PutUint64(payload, uint64(n))
	if !enqueued.IsZero() {
		binary.BigEndian.PutUint64(payload[8:], uint64(enqueued.UnixNano()))
	}
	return outbox.Message{Topic: "load", Key: key, Payload: payload}
}

func decode(payload []byte) (n int, enqueued time.Time, err error) {
	if len(payload) < 16 {
		return 0, time.Time{}, errors.New("not a message of this package")
	}
	if at := binary.BigEndian.Uint64(payload[8:]); at != 0 {
		enqueued = time.Unix(0, int64(at))
	}
	return int(binary.BigEndian.Uint64(payload)), enqueued, nil
}

// Load is several writers, each with keys of its own, that enqueue at a rate.
type Load struct {
	Pool *pgxpool.Pool
	// Rate is how many messages a second all writers enqueue together, one a
	// transaction.
	Rate    int
	Writers int
	Size    int // of a payload, in bytes
	// Name begins the keys, so that two loads have different ones.
	Name string
	// Tolerant: a database that is away ends nothing. What a transaction did that
	// ended in an error stays open.
	Tolerant bool

	committed atomic.Int64
	slowest   atomic.Int64

	mu   sync.Mutex
	sure map[string]map[int]bool // numbers by key; false: perhaps committed
}

// Lost are messages that were committed and did not come to the counter.
func (l *Load) Lost(c *Counter) (lost []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, numbers := range l.sure {
		for n, sure := range numbers {
			if sure && !c.Seen(key, n) {
				lost = append(lost, fmt.Sprintf("number %d of key %s", n, key))
			}
		}
	}
	return lost
}

// note keeps what became of a message, of a tolerant load.
func (l *Load) note(key string, n int, committed bool) {
	if !l.Tolerant {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sure == nil {
		l.sure = map[string]map[int]bool{}
	}
	if l.sure[key] == nil {
		l.sure[key] = map[int]bool{}
	}
	l.sure[key][n] = committed
}

// Committed is how many messages were committed.
func (l *Load) Committed() int { return int(l.committed.Load()) }

// Slowest is how long the slowest transaction took.
func (l *Load) Slowest() time.Duration { return time.Duration(l.slowest.Load()) }

// Run enqueues until ctx ends. A writer that comes late does not catch up, so
// that a busy machine only lowers the rate.
func (l *Load) Run(ctx context.Context) error {
	var writers sync.WaitGroup
	errs := make(chan error, l.Writers)
	for i := range l.Writers {
		writers.Go(func() { errs <- l.write(ctx, i) })
	}
	writers.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// keysOfWriter is how many keys a writer takes turns with.
const keysOfWriter = 25

func (l *Load) write(ctx context.Context, writer int) error {
	enqueue := outbox.NewWriter(pgstore.Pgx{})
	every := time.Second * time.Duration(l.Writers) / time.Duration(l.Rate)
	tick := time.NewTicker(every)
	defer tick.Stop()
	numbers := [keysOfWriter]int{}
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		at := i % keysOfWriter
		key := fmt.Sprintf("%s %d/%d", l.Name, writer, at)
		begun := time.Now()
		// A stop does not leave it open whether the last one was committed.
		err := pgx.BeginFunc(context.WithoutCancel(ctx), l.Pool, func(tx pgx.Tx) error {
			return enqueue.Enqueue(context.WithoutCancel(ctx), tx, Message(key, numbers[at]+1, begun, l.Size))
		})
		numbers[at]++
		l.note(key, numbers[at], err == nil)
		if err != nil && l.Tolerant {
			continue
		}
		if err != nil {
			return fmt.Errorf("enqueue number %d of key %s: %w", numbers[at], key, err)
		}
		l.committed.Add(1)
		for took := int64(time.Since(begun)); ; {
			if slowest := l.slowest.Load(); took <= slowest || l.slowest.CompareAndSwap(slowest, took) {
				break
			}
		}
	}
}
