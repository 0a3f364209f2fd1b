package memstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/conformance"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/memstore"
)

func TestStoreConforms(t *testing.T)   { conformance.Store(t, harness) }
func TestSharingConforms(t *testing.T) { conformance.Sharing(t, harness) }
func TestAdminConforms(t *testing.T)   { conformance.Admin(t, harness) }
func TestInboxConforms(t *testing.T)   { conformance.Inbox(t, inboxHarness) }

func harness(_ testing.TB, shards int) conformance.Harness[*memstore.Tx] {
	s := memstore.New(memstore.Options{Shards: shards})
	return conformance.Harness[*memstore.Tx]{
		Store: s, Inserter: s, ConcurrentWriters: true,
		Begin:    func(context.Context) (*memstore.Tx, error) { return s.Begin(), nil },
		Commit:   func(_ context.Context, tx *memstore.Tx) error { return tx.Commit() },
		Rollback: func(_ context.Context, tx *memstore.Tx) error { return tx.Rollback() },
		Now:      func(context.Context) (time.Time, error) { return time.Now(), nil },
		Operate:  s.Operate, Admin: memstore.NewAdmin(s),
		SetPaused: func(_ context.Context, route string, paused bool) error {
			s.SetPaused(route, paused)
			return nil
		},
	}
}

// The effect is a message in the outbox of the same store.
func inboxHarness(testing.TB) conformance.InboxHarness[*memstore.Tx] {
	s := memstore.New(memstore.Options{})
	return conformance.InboxHarness[*memstore.Tx]{
		Store: memstore.Inbox{Store: s},
		Effect: func(ctx context.Context, tx *memstore.Tx, consumer string, id uuid.UUID) error {
			return outbox.NewWriter(s).Enqueue(ctx, tx, outbox.Message{Topic: consumer, Payload: id[:]})
		},
		Effects: func(_ context.Context, consumer string, id uuid.UUID) (n int, err error) {
			for _, m := range s.Messages() {
				if m.Topic == consumer && string(m.Payload) == string(id[:]) {
					n++
				}
			}
			return n, nil
		},
	}
}
