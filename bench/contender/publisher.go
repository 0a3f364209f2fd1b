package contender

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/postrider/postrider/outbox"
)

// publisher is a sink as this project's relay sees it.
type publisher struct {
	sink   *Sink
	verify bool

	mu   sync.Mutex
	last map[string]int // number of each key's last message
}

// Publish acknowledges everything.
func (p *publisher) Publish(_ context.Context, msgs []outbox.Message) []outbox.Result {
	if p.verify {
		p.checkOrder(msgs)
	}
	for i := range msgs {
		p.sink.MarkPayload(msgs[i].Payload)
	}
	p.sink.Batch(len(msgs))
	return make([]outbox.Result, len(msgs))
}

// checkOrder ends the process when a message overtakes an earlier one of its key.
func (p *publisher) checkOrder(msgs []outbox.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[string]int{}
	}
	for i := range msgs {
		n := numberOf(msgs[i].Payload)
		if last, known := p.last[msgs[i].Key]; known && last >= n {
			fmt.Fprintf(os.Stderr, "message %d of key %s came after message %d\n", n, msgs[i].Key, last)
			os.Exit(1)
		}
		p.last[msgs[i].Key] = n
	}
}
