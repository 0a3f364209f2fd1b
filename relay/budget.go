package relay

import (
	"context"
	"sync"
)

// budget bounds what one route has in hand. Room for a page of messages is
// reserved before they are received; their bytes are counted afterwards.
type budget struct {
	mu       sync.Mutex
	messages int
	bytes    int64
	waiting  int
	freed    chan struct{} // closed, and replaced, by a release that somebody waits for

	maxMessages int
	maxBytes    int64
}

func newBudget(messages int, bytes int64) *budget {
	return &budget{maxMessages: messages, maxBytes: max(bytes, 1), freed: make(chan struct{})}
}

// reserve waits for room and takes it, for up to want messages of about the
// given size; it returns for how many, 0 once ctx has ended. It waits for a
// useful amount rather than hand out crumbs.
func (b *budget) reserve(ctx context.Context, want int, size int64) int {
	fits := min(int64(b.maxMessages), b.maxBytes/max(size, 1))
	useful := max(min(int64(want), fits/8), 1)
	for {
		b.mu.Lock()
		room := min(int64(b.maxMessages-b.messages), (b.maxBytes-b.bytes)/max(size, 1), int64(want))
		if room < 1 && b.bytes == 0 && b.messages < b.maxMessages {
			room = 1 // a message larger than the limit still has to go through
		}
		if room >= useful {
			b.messages += int(room)
			b.mu.Unlock()
			return int(room)
		}
		freed := b.freed
		b.waiting++
		b.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
		}
		b.mu.Lock()
		b.waiting--
		b.mu.Unlock()
		if ctx.Err() != nil {
			return 0
		}
	}
}

// take counts bytes, and messages beyond those reserved (or, negative, short
// of them).
func (b *budget) take(messages int, bytes int64) { b.release(-messages, -bytes) }

// release gives back.
func (b *budget) release(messages int, bytes int64) {
	b.mu.Lock()
	b.messages -= messages
	b.bytes -= bytes
	if b.waiting > 0 && (messages > 0 || bytes > 0) {
		close(b.freed)
		b.freed = make(chan struct{})
	}
	b.mu.Unlock()
}
