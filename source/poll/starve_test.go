package poll_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// picky refuses messages of topic poison.
type picky struct {
	*sink
	refused atomic.Int64
}

func (p *picky) Publish(ctx context.Context, msgs []outbox.Message) []outbox.Result {
	results := p.sink.Publish(ctx, msgs)
	for i := range msgs {
		if msgs[i].Topic == "poison" {
			results[i].Err = outbox.Retryable(errors.New("never"))
			p.refused.Add(1)
		}
	}
	return results
}

// More messages than are handed out of the parked set at a time fail again and
// again, and are due nearly always: new ones are read and sent all the same.
func TestDuePoisonDoesNotStarveTheLog(t *testing.T) {
	poison := testsize.Pick(1500, 5000)
	o := newOffice(t, open(t), "poison", 1, "route")
	o.limits.InFlightMessages = 100
	publisher := &picky{sink: o.routes["route"]}
	o.open(func(r *relay.Route) {
		r.Publisher = publisher
		r.Retry = relay.RetryPolicy{MaxAttempts: 1_000_000, Initial: 5 * time.Millisecond, Max: 5 * time.Millisecond, Factor: 1, Jitter: -1}
	})
	o.enqueue(poison, "poison")
	o.await("the poison comes again", func() bool { return publisher.refused.Load() > int64(2*poison) })
	for i := range 20 {
		began := time.Now()
		o.enqueue(1, fmt.Sprint("new ", i))
		o.await("a new message is sent", func() bool { return o.lacking("route") == 0 })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("new message %d took %v", i, took)
		}
	}
}
