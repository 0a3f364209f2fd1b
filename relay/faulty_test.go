package relay_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/postrider/postrider/relay"
)

var errAway = errors.New("away, says the test")

// faultyStore is a store that can be away, and counts the calls.
type faultyStore struct {
	relay.Store
	mu       sync.Mutex
	away     error
	lateLoss bool // a Settle that fails was recorded all the same
	recalls  bool // its leases can call messages back
	died     atomic.Bool
	acquires int
	settle   func() // called before each Settle
}

func (s *faultyStore) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
}

// die is what the end of its process is to a store.
func (s *faultyStore) die() {
	s.died.Store(true)
	s.set(errAway)
}

func (s *faultyStore) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acquires
}

func (s *faultyStore) check(acquire bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if acquire {
		s.acquires++
	}
	return s.away
}

func (s *faultyStore) Acquire(ctx context.Context, claim relay.Claim) (relay.Lease, error) {
	if err := s.check(true); err != nil {
		return nil, err
	}
	lease, err := s.Store.Acquire(ctx, claim)
	if err != nil {
		return nil, err
	}
	if s.recalls {
		return &recallingLease{faultyLease{lease, s}}, nil
	}
	return &faultyLease{lease, s}, nil
}

type recallingLease struct{ faultyLease }

func (l *recallingLease) Recall(ctx context.Context, seqs []int64) error {
	if err := l.store.check(false); err != nil {
		return err
	}
	return l.Lease.(relay.Recaller).Recall(ctx, seqs)
}

type faultyLease struct {
	relay.Lease
	store *faultyStore
}

func (l *faultyLease) Deaths() int { return l.Lease.(relay.DeathCounter).Deaths() }

func (l *faultyLease) Survived() { l.Lease.(relay.DeathCounter).Survived() }

func (l *faultyLease) Receive(ctx context.Context, max int) ([]relay.Delivery, error) {
	if err := l.store.check(false); err != nil {
		return nil, err
	}
	return l.Lease.Receive(ctx, max)
}

func (l *faultyLease) Settle(ctx context.Context, outcomes []relay.Outcome) error {
	if l.store.settle != nil {
		l.store.settle()
	}
	if err := l.store.check(false); err != nil {
		if l.store.lateLoss {
			_ = l.Lease.Settle(ctx, outcomes)
		}
		return err
	}
	return l.Lease.Settle(ctx, outcomes)
}

// Close is not called by a process that has died: its lease runs out.
func (l *faultyLease) Close(ctx context.Context) error {
	if l.store.died.Load() {
		return errAway
	}
	return l.Lease.Close(ctx)
}
