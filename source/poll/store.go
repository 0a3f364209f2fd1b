// Package poll is how the relay learns of committed rows by asking PostgreSQL
// for them. It hands every committed message out and none that was rolled back,
// in an order that keeps each key's, and no transaction that stays open, here
// or elsewhere in the cluster, holds the others up.
//
// Rows are read in order of their numbers. A number that is missing belongs to
// a transaction that is still open or was rolled back; it is remembered as a
// gap and looked for again until it appears or can be shown to be dead. See
// ARCHITECTURE.md for the whole protocol.
package poll

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgstore"
)

// Config of a Store.
type Config struct {
	// Pool is the connection pool. Required. Each lease uses up to two
	// connections at a time, and the store one more. Where its connections go
	// through a pooler that shares sessions, it must send statements without
	// names (pgx.QueryExecModeCacheDescribe). Its role's search_path must not name
	// a schema before pg_catalog.
	Pool pgstore.DB
	// Schema holds the tables. Default pgstore.DefaultSchema.
	Schema pgstore.Schema
	// MinInterval and MaxInterval bound the pause between two polls: the
	// shortest while messages come, the longest when idle. Default 2 and 25 ms.
	MinInterval, MaxInterval time.Duration
	// PageSize is how many rows one statement reads at most. Default 2000.
	PageSize int
	// InlineGaps is how many missing numbers are looked for in every read; more
	// are looked for only when a snapshot shows a reason. Default 1000.
	InlineGaps int
}

// Store is a relay.Store on PostgreSQL. Safe for concurrent use.
type Store struct {
	cfg Config

	mu     sync.Mutex
	shards int
	watch  *watch
	stood  map[pgstore.RouteShard]*pgstore.Stood // where leases stood whose cursors are gone

	cleaning sync.Mutex
	cleaner  *pgstore.Cleaner // made when it is first needed
}

var (
	_ relay.Store   = (*Store)(nil)
	_ relay.Cleaner = (*Store)(nil)
)

// New checks the configuration; it does not connect.
func New(cfg Config) (*Store, error) {
	var errs []error
	if cfg.Pool == nil {
		errs = append(errs, errors.New("pool is missing"))
	}
	errs = append(errs, cfg.Schema.Validate())
	if cfg.MinInterval == 0 {
		cfg.MinInterval = 2 * time.Millisecond
	}
	if cfg.MaxInterval == 0 {
		cfg.MaxInterval = max(cfg.MinInterval, 25*time.Millisecond)
	}
	if cfg.MinInterval < 0 || cfg.MaxInterval < cfg.MinInterval {
		errs = append(errs, fmt.Errorf("poll intervals %s to %s are not a range", cfg.MinInterval, cfg.MaxInterval))
	}
	if cfg.PageSize == 0 {
		cfg.PageSize = 2000
	}
	if cfg.InlineGaps == 0 {
		cfg.InlineGaps = 1000
	}
	if cfg.PageSize < 0 || cfg.InlineGaps < 0 {
		errs = append(errs, fmt.Errorf("page size %d and inline gaps %d must not be negative", cfg.PageSize, cfg.InlineGaps))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("poll: %w", err)
	}
	return &Store{cfg: cfg, stood: make(map[pgstore.RouteShard]*pgstore.Stood)}, nil
}

// Shards reads the number of shards. pgstore.ErrNoSchema if the tables are
// missing or not all there, pgstore.ErrNewerSchema if they are a later
// version's and not for this one.
func (s *Store) Shards(ctx context.Context) (int, error) {
	status, err := pgstore.CheckSchema(ctx, s.cfg.Pool, s.cfg.Schema)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards = status.Shards
	if s.watch == nil {
		s.watch = newWatch(s.cfg.Pool, s.cfg.Schema, status.Shards, s.cfg.MinInterval, s.cfg.MaxInterval)
	}
	return status.Shards, nil
}

// Acquire takes the lease of one shard of one route.
func (s *Store) Acquire(ctx context.Context, claim relay.Claim) (relay.Lease, error) {
	s.mu.Lock()
	shards, watch := s.shards, s.watch
	s.mu.Unlock()
	if watch == nil {
		var err error
		if shards, err = s.Shards(ctx); err != nil {
			return nil, err
		}
		s.mu.Lock()
		watch = s.watch
		s.mu.Unlock()
	}
	match, err := claim.Validate(shards)
	if err != nil {
		return nil, fmt.Errorf("poll: %w", err)
	}
	if err := s.guard(ctx, claim.Shard); err != nil {
		return nil, err
	}
	at := pgstore.RouteShard{Route: claim.Route, Shard: claim.Shard}
	s.mu.Lock()
	stood := s.stood[at]
	s.mu.Unlock()
	cursor, err := pgstore.Acquire(ctx, s.cfg.Pool, s.cfg.Schema, claim, stood)
	if err == nil || errors.Is(err, relay.ErrHeld) { // there is a cursor
		s.remember(at, nil)
	}
	if err != nil {
		return nil, err
	}
	l := newLease(s, watch, claim, match, cursor)
	if err := l.checkTail(ctx); err != nil {
		return nil, errors.Join(err, l.Close(context.WithoutCancel(ctx)))
	}
	return l, nil
}

// remember notes where a lease stood; nil: that is in the database.
func (s *Store) remember(at pgstore.RouteShard, stood *pgstore.Stood) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.stood, at); stood != nil {
		s.stood[at] = stood
	}
}

// guard reports what would make reading the shard unsafe: tables that a later
// version has migrated meanwhile, and what somebody has changed about the log.
func (s *Store) guard(ctx context.Context, shard int) error {
	if _, err := pgstore.CheckSchema(ctx, s.cfg.Pool, s.cfg.Schema); err != nil {
		return err
	}
	err := pgstore.CheckServer(ctx, s.cfg.Pool, s.cfg.Schema)
	if errors.Is(err, pgstore.ErrStandby) {
		// The address may lead to the primary by now; connections stay.
		if pool, ok := s.cfg.Pool.(interface{ Reset() }); ok {
			pool.Reset()
		}
	}
	if err != nil {
		return err
	}
	return pgstore.CheckLog(ctx, s.cfg.Pool, s.cfg.Schema, shard)
}

// Clean deletes old messages, as relay.Cleaner says.
func (s *Store) Clean(ctx context.Context, keep relay.Retention) (relay.Cleaned, error) {
	s.cleaning.Lock()
	defer s.cleaning.Unlock()
	if s.cleaner == nil {
		shards, err := s.Shards(ctx)
		if err != nil {
			return relay.Cleaned{}, err
		}
		s.cleaner = pgstore.NewCleaner(s.cfg.Pool, s.cfg.Schema, shards)
	}
	return s.cleaner.Clean(ctx, keep)
}
