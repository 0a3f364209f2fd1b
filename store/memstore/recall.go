package memstore

import (
	"context"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

var _ relay.Recaller = (*lease)(nil)

// Recall implements relay.Recaller.
func (l *lease) Recall(ctx context.Context, seqs []int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	now := time.Now()
	for _, seq := range seqs {
		if p := l.cursor.parked[seq]; p != nil && p.state == outbox.StatePending && !p.out {
			l.cursor.setDue(p, now)
		}
	}
	s.wake()
	return nil
}
