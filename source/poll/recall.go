package poll

import (
	"context"

	"github.com/postrider/postrider/relay"
)

var _ relay.Recaller = (*lease)(nil)

// Recall implements relay.Recaller.
func (l *lease) Recall(ctx context.Context, seqs []int64) error {
	if err := l.cursor.Recall(ctx, seqs); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wake = true
	return nil
}
