// Package memstore keeps messages in memory. It is a small, real store for
// examples and tests: transactions with numbers drawn at Insert (so that late
// commits and gaps happen as they do in a database), leases with fencing
// tokens, and a parked set. Nothing survives the process, and the log is never
// trimmed.
//
// It reads the clock through time.Now only, so testing/synctest can drive it.
package memstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/internal/shardkey"
	"github.com/postrider/postrider/outbox"
)

// DefaultShards is the number of shards of a Store that names none.
const DefaultShards = 4

// ErrTxDone is returned when a transaction that has ended is used.
var ErrTxDone = errors.New("memstore: the transaction has already ended")

// Options configure a Store. The zero value works.
type Options struct {
	// Shards is how many parts the log has; each is leased on its own, and a
	// key belongs to one of them. Less than 1: DefaultShards.
	Shards int
}

// Store is an outbox.Inserter[*Tx], an outbox.KeyLocker[*Tx] and a
// relay.Store. It is safe for concurrent use. Make it with New.
type Store struct {
	mu      sync.Mutex
	shards  [][]row // a row's number is its index plus one
	cursors map[cursorKey]*cursor
	records map[record]*Tx // the inbox
	locks   map[string]*Tx
	replays int64         // how many there were
	changed chan struct{} // closed, and replaced, when there may be more to receive

	members map[string]member // by owner
	joins   int
	paused  map[string]pause // routes that nobody is to read
	audit   []admin.Entry    // an entry's ID is its index plus one
}

type row struct {
	message outbox.Message
	tx      *Tx
}

// New returns an empty Store.
func New(options Options) *Store {
	if options.Shards < 1 {
		options.Shards = DefaultShards
	}
	return &Store{
		shards:  make([][]row, options.Shards),
		cursors: make(map[cursorKey]*cursor),
		records: make(map[record]*Tx),
		locks:   make(map[string]*Tx),
		changed: make(chan struct{}),

		members: make(map[string]member),
		paused:  make(map[string]pause),
	}
}

// Shards returns the number of shards.
func (s *Store) Shards(context.Context) (int, error) { return len(s.shards), nil }

// Insert writes the messages in tx. Their numbers are drawn now, in this
// order, and are visible to nobody before Commit.
func (s *Store) Insert(_ context.Context, tx *Tx, msgs []outbox.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := tx.usable(s); err != nil {
		return err
	}
	now := stored(time.Now())
	for _, m := range msgs {
		m.CreatedAt, m.NotBefore, m.Expires, m.Replay = now, stored(m.NotBefore), stored(m.Expires), 0
		m.Payload = slices.Clone(m.Payload)
		m.Headers = maps.Clone(m.Headers)
		shard := shardkey.Shard(m.Key, len(s.shards))
		s.shards[shard] = append(s.shards[shard], row{m, tx})
	}
	return nil
}

// stored is a time as databases keep it: in microseconds, of the wall clock.
func stored(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Truncate(time.Microsecond).UTC()
}

// Messages returns everything that was committed, by shard and number.
func (s *Store) Messages() []outbox.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []outbox.Message
	for _, log := range s.shards {
		for _, r := range log {
			if r.tx.state == txCommitted {
				out = append(out, r.message)
			}
		}
	}
	return out
}

// wake tells every waiting Receive to look again. The caller holds s.mu.
func (s *Store) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

type txState int

const (
	txOpen txState = iota
	txCommitted
	txRolledBack
)

// Tx is a transaction on a Store. Its methods and the Store's that take it are
// for one goroutine at a time.
type Tx struct {
	store   *Store
	state   txState // guarded by store.mu
	done    chan struct{}
	records []record
	locks   []string
}

// Begin starts a transaction. End it with Commit or Rollback.
func (s *Store) Begin() *Tx { return &Tx{store: s, done: make(chan struct{})} }

// Commit makes what the transaction wrote visible, all at once. ErrTxDone if
// it has ended before.
func (tx *Tx) Commit() error { return tx.end(txCommitted) }

// Rollback undoes what the transaction wrote; the numbers that it drew stay
// gaps for ever. After a Commit or Rollback it does nothing and returns
// ErrTxDone, so it can be deferred.
func (tx *Tx) Rollback() error { return tx.end(txRolledBack) }

func (tx *Tx) end(state txState) error {
	s := tx.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if tx.state != txOpen {
		return ErrTxDone
	}
	tx.state = state
	if state == txRolledBack {
		for _, r := range tx.records {
			delete(s.records, r)
		}
	}
	for _, key := range tx.locks {
		delete(s.locks, key)
	}
	tx.records, tx.locks = nil, nil
	close(tx.done)
	s.wake()
	return nil
}

func (tx *Tx) usable(s *Store) error {
	if tx.store != s {
		return errors.New("memstore: the transaction belongs to another store")
	}
	if tx.state != txOpen {
		return ErrTxDone
	}
	return nil
}

// LockKeys waits for, and takes, one lock per distinct key, in sorted order;
// they end with the transaction.
func (s *Store) LockKeys(ctx context.Context, tx *Tx, keys []string) error {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	for _, key := range keys {
		err := s.claim(ctx, tx, func() *Tx {
			holder := s.locks[key]
			if holder == nil {
				s.locks[key] = tx
				tx.locks = append(tx.locks, key)
			}
			return holder
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// claim calls try, under the lock, until the transaction that it returns is
// nil, tx itself, or committed; between calls it waits for that one to end.
func (s *Store) claim(ctx context.Context, tx *Tx, try func() *Tx) error {
	for {
		s.mu.Lock()
		if err := tx.usable(s); err != nil {
			s.mu.Unlock()
			return err
		}
		holder := try()
		free := holder == nil || holder == tx || holder.state == txCommitted
		s.mu.Unlock()
		if free {
			return nil
		}
		select {
		case <-holder.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

type record struct {
	consumer string
	id       uuid.UUID
}
