package sqsbroker

import (
	"context"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// holds are the messages that the session keeps hidden.
type holds struct {
	mu  sync.Mutex
	all map[*hold]struct{}
}

func (hs *holds) add(messages []types.Message) []*hold {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	now := time.Now()
	added := make([]*hold, len(messages))
	for i := range messages {
		added[i] = &hold{message: messages[i], since: now}
		hs.all[added[i]] = struct{}{}
	}
	return added
}

func (hs *holds) remove(gone ...*hold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range gone {
		delete(hs.all, h)
	}
}

func (hs *holds) count() int {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return len(hs.all)
}

// olderThan returns what was received or extended before t.
func (hs *holds) olderThan(t time.Time) []*hold {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	var due []*hold
	for h := range hs.all {
		if h.since.Before(t) {
			due = append(due, h)
		}
	}
	return due
}

// extended notes that the batch is hidden anew from at on.
func (hs *holds) extended(batch []*hold, at time.Time) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range batch {
		h.since = at
	}
}

// finish notes that the message has been handled and is to be deleted.
func (hs *holds) finish(h *hold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.handled = true
}

// inHand reports whether the message is being handled or about to be.
func (hs *holds) inHand(h *hold) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	_, ok := hs.all[h]
	return ok && !h.handled
}

// heartbeat keeps held messages hidden until ctx ends: every third of the
// visibility timeout it extends those that were not extended in the last sixth,
// so each is extended when at most half of its time is over, and a beat that
// fails is followed by another in time.
func (s *session) heartbeat(ctx context.Context) {
	beat := s.cfg.VisibilityTimeout / 3
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s.extend(ctx, s.held.olderThan(time.Now().Add(-beat/2)), beat)
	}
}

func (s *session) extend(ctx context.Context, due []*hold, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var wg sync.WaitGroup
	for batch := range batches(due) {
		wg.Go(func() {
			sent := time.Now()
			err := s.setVisibility(ctx, batch, s.cfg.VisibilityTimeout, s.lost)
			if err == nil {
				s.held.extended(batch, sent)
			} else if s.work.Err() == nil && ctx.Err() != context.Canceled {
				s.logError(ctx, "cannot extend the visibility of messages that are being handled", err, "messages", len(batch))
			}
		})
	}
	wg.Wait()
}

// lost: SQS does not extend this one any more (its time was over, or 12 h have
// passed), so somebody else may get it while it is being handled here.
func (s *session) lost(h *hold, err error) {
	if !s.held.inHand(h) {
		// Given back or deleted while the request was on its way, or SQS has
		// deleted it and its answer is still to come. If it was neither, the
		// deletion says so.
		return
	}
	s.cfg.Logger.WarnContext(s.work, "a message that is being handled may be handed out again",
		"queue", s.queue.name, "sqs_id", aws.ToString(h.message.MessageId), "error", err)
}

func batches(hs []*hold) iter.Seq[[]*hold] { return slices.Chunk(hs, MaxBatch) }

// backoff waits longer each time: 100 ms to 10 s, half of it at random.
type backoff struct{ next time.Duration }

const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 10 * time.Second
)

func newBackoff() *backoff { return &backoff{next: backoffFirst} }

func (b *backoff) reset() { b.next = backoffFirst }

// sleep returns false if ctx ended.
func (b *backoff) sleep(ctx context.Context) bool {
	timer := time.NewTimer(b.next/2 + rand.N(b.next/2))
	defer timer.Stop()
	b.next = min(2*b.next, backoffMost)
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
