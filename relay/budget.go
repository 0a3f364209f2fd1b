package relay

import (
	"context"
	"sync"
	"time"
)

// PageBytes is about where a store ends a page of Receive early: after the
// message that reaches it. So it bounds what comes in at once when messages are
// suddenly larger than those before.
const PageBytes = 8 << 20

// stallTick is how often a reserve that has to wait says so.
const stallTick = 50 * time.Millisecond

// budget bounds what one route has in hand. Room for a page of messages is
// reserved before they are received, by the size of those before; their real
// size is counted afterwards.
type budget struct {
	maxMessages int
	maxBytes    int64
	pageBytes   int64  // the most that is reserved for a page
	stalled     func() // if set, called now and then while there is no room

	mu       sync.Mutex
	messages int   // in hand, and reserved
	bytes    int64 // in hand
	reserved int64 // bytes
	lent     int   // messages beyond maxMessages
	shut     bool  // nothing is to be received for now
	waiting  int
	freed    chan struct{} // closed, and replaced, by a release that somebody waits for
}

// room is what was reserved for a page.
type room struct {
	messages int
	bytes    int64
}

// newBudget shares the bytes so that pages that wait for something to come in
// leave half of them to what is in hand.
func newBudget(messages int, bytes int64, shards int) *budget {
	bytes = max(bytes, 1)
	return &budget{
		maxMessages: messages, maxBytes: bytes, pageBytes: max(bytes/int64(2*max(shards, 1)), 1),
		freed: make(chan struct{}),
	}
}

// reserve waits for room and takes it, for up to want messages of about the
// given size; none once ctx has ended. It waits for a useful amount rather than
// hand out crumbs.
func (b *budget) reserve(ctx context.Context, want int, size int64) room {
	size = max(size, 1)
	want = int(min(int64(want), max(b.pageBytes/size, 1)))
	useful := max(min(want, b.maxMessages/8), 1)
	for {
		b.mu.Lock()
		if r := b.fit(want, size); r.messages >= useful {
			b.messages += r.messages
			b.reserved += r.bytes
			b.mu.Unlock()
			return r
		}
		freed := b.freed
		b.waiting++
		b.mu.Unlock()
		b.wait(ctx, freed)
		b.mu.Lock()
		b.waiting--
		b.mu.Unlock()
		if ctx.Err() != nil {
			return room{}
		}
	}
}

// fit is the room that there is for up to want messages. The caller holds mu.
func (b *budget) fit(want int, size int64) room {
	if b.shut {
		return room{}
	}
	n := min(int64(b.maxMessages+b.lent-b.messages), (b.maxBytes-b.bytes-b.reserved)/size, int64(want))
	if n < 1 && b.bytes == 0 && b.messages < b.maxMessages {
		n = 1 // a message larger than the limit still has to go through
	}
	n = max(n, 0)
	return room{int(n), min(n*size, b.pageBytes)}
}

// wait returns once something was freed or ctx has ended, or after a moment.
func (b *budget) wait(ctx context.Context, freed <-chan struct{}) {
	var tick <-chan time.Time
	if b.stalled != nil {
		b.stalled()
		timer := time.NewTimer(stallTick)
		defer timer.Stop()
		tick = timer.C
	}
	select {
	case <-freed:
	case <-tick:
	case <-ctx.Done():
	}
}

// received counts what came in instead of what was reserved.
func (b *budget) received(r room, messages int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserved -= r.bytes
	b.bytes += bytes
	b.messages += messages - r.messages
	if messages < r.messages || bytes < r.bytes {
		b.wake()
	}
}

// release gives back what is not in hand any more.
func (b *budget) release(messages int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages -= messages
	b.bytes -= bytes
	if messages > 0 || bytes > 0 {
		b.wake()
	}
}

// lend allows for more messages, until it is called again.
func (b *budget) lend(messages int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if messages > b.lent {
		defer b.wake()
	}
	b.lent = messages
}

// shutDown says whether nothing is to be received for now.
func (b *budget) shutDown(shut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = shut
	b.wake()
}

// wake lets whoever waits look again. The caller holds mu.
func (b *budget) wake() {
	if b.waiting > 0 {
		close(b.freed)
		b.freed = make(chan struct{})
	}
}
