// Package search is the service that makes orders findable: it keeps a Bleve
// index on disk and answers searches over HTTP. An order's document has the
// order's id, so indexing it again changes nothing, and the service needs no
// inbox.
package search

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/blevesearch/bleve/v2"

	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/outbox"
)

// Names that the service goes by unless it is told others.
const (
	DefaultQueue = "search"
	DefaultPath  = "search.bleve"
)

// Config is what the service needs.
type Config struct {
	// Path is the folder of the index; it is created if it is not there. Only
	// one process can use it. Default: DefaultPath.
	Path string
	// Logger gets what clients must not see. Default: slog.Default.
	Logger *slog.Logger
	// Handled, if set, is called after an event has been dealt with; duplicate
	// means that the order was in the index before.
	Handled func(e event.OrderCreated, duplicate bool)
}

// Service is the search service. It is safe for concurrent use.
type Service struct {
	index   bleve.Index
	lock    *os.File // nil where there are no locks
	path    string
	log     *slog.Logger
	handled func(event.OrderCreated, bool)
	serial  atomic.Uint64 // of the last write
	stuck   atomic.Bool   // the last write did not come back
	close   func() error
}

// Open opens the index, or creates it. What a killed process left behind while
// it was creating one is removed. An index that is not whole is a *DamagedError.
func Open(c Config) (*Service, error) {
	s := &Service{path: c.Path, log: c.Logger, handled: c.Handled}
	if s.path == "" {
		s.path = DefaultPath
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.handled == nil {
		s.handled = func(event.OrderCreated, bool) {}
	}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("search: open the index %s: %w", s.path, errors.Join(err, s.unlock()))
	}
	s.close = sync.OnceValue(s.closeIndex)
	return s, nil
}

// Handle is the service's inbox.Handler. It returns nil once the order is on
// disk.
func (s *Service) Handle(ctx context.Context, m outbox.Message) error {
	e, ok, err := event.Read(m)
	if err != nil {
		return fmt.Errorf("search: %w", err)
	}
	if !ok {
		s.log.DebugContext(ctx, "event of no concern", "type", m.Type, "message", m.ID)
		return nil
	}
	doc, err := newDocument(e)
	if err != nil {
		return outbox.Permanent(fmt.Errorf("search: order %s: %w", e.OrderID, err))
	}
	// An order that is there is indexed again all the same: it may have been put
	// there by a copy of this message a moment ago and not be on disk yet.
	before, err := s.index.Document(e.OrderID)
	if err != nil {
		return outbox.Unavailable(fmt.Errorf("search: look for order %s: %w", e.OrderID, err))
	}
	batch := s.index.NewBatch()
	if err := batch.Index(e.OrderID, doc); err != nil {
		return outbox.Permanent(fmt.Errorf("search: order %s: %w", e.OrderID, err))
	}
	if err := s.write(batch); err != nil {
		return fmt.Errorf("search: write order %s: %w", e.OrderID, err)
	}
	s.handled(e, before != nil)
	return nil
}

// writeTimeout bounds a write to disk, merges of older files included.
const writeTimeout = time.Minute

// write returns once the batch is on disk. Whatever goes wrong (a full disk, as
// a rule) is true of every order. Writes at the same time reach the disk
// together.
func (s *Service) write(batch *bleve.Batch) error {
	batch.SetInternal(serialKey, s.nextSerial())
	written := make(chan error, 1)
	go func() { written <- s.index.Batch(batch) }()
	timeout := time.NewTimer(writeTimeout)
	defer timeout.Stop()
	select {
	case err := <-written:
		s.stuck.Store(false)
		if err != nil {
			return outbox.Unavailable(err)
		}
		return nil
	case <-timeout.C:
		s.stuck.Store(true)
		return outbox.TimedOut(fmt.Errorf("not done within %v", writeTimeout))
	}
}

// Check reports why the index cannot be used.
func (s *Service) Check(context.Context) error {
	if s.stuck.Load() {
		return fmt.Errorf("search: the index %s does not take writes any more", s.path)
	}
	_, err := s.index.DocCount()
	return err
}

// closeTimeout bounds Close, which waits for writes.
const closeTimeout = 10 * time.Second

// Close closes the index. Stop consuming before. Safe to call twice.
func (s *Service) Close() error { return s.close() }

func (s *Service) closeIndex() error {
	closed := make(chan error, 1)
	go func() { closed <- s.index.Close() }()
	select {
	case err := <-closed:
		return errors.Join(err, s.unlock())
	case <-time.After(closeTimeout):
		// The lock stays, since somebody is still writing.
		return fmt.Errorf("search: the index %s does not close", s.path)
	}
}
