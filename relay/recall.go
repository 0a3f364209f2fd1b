package relay

import (
	"context"
	"fmt"
)

// Recaller is an optional capability of a Lease: messages that were parked as
// pending come back as soon as their destination takes them again. From a Lease
// without it they come when their time is up.
type Recaller interface {
	// Recall makes messages of the shard due at once, those of the given numbers
	// that are parked as pending; the others stay as they are. It runs while
	// Receive does, but not while Settle does. The slice is not kept.
	// ErrFenced: another relay took over; nothing was changed. After another
	// error than the context's end the Lease is unusable.
	Recall(ctx context.Context, seqs []int64) error
}

// mostRecalled is how many messages are called back at a time.
const mostRecalled = 1000

// wait notes that a message of this number is parked as pending for the
// destination. The caller holds r.mu.
func (o *outlet) wait(seq int64) {
	if _, ok := capability[Recaller](o.s.lease); !ok {
		return
	}
	if o.parked == nil {
		o.parked = make(map[int64]struct{})
	}
	o.parked[seq] = struct{}{}
	o.to.r.waiting[o.to] = struct{}{}
}

// callBack asks for what is parked for destinations that have little left in
// hand and are not away. The caller holds mu.
func (r *route) callBack() {
	low := max(r.budget.maxMessages/16/max(len(r.stuck), 1), 1)
	for d := range r.waiting {
		if d.breaker.open || d.waiting+d.alone >= low {
			continue
		}
		left := false
		for _, o := range d.outlets {
			left = left || len(o.parked) > 0
			o.callBack(min(2*low, mostRecalled))
		}
		if !left {
			delete(r.waiting, d)
		}
	}
}

// callBack asks for up to n messages, unless it has asked and not been answered.
func (o *outlet) callBack(n int) {
	if len(o.s.recalled) > 0 || o.gone {
		return
	}
	for seq := range o.parked {
		if n--; n < 0 {
			break
		}
		delete(o.parked, seq)
		o.s.recalled = append(o.s.recalled, seq)
	}
	if len(o.s.recalled) > 0 {
		signal(o.s.wake)
	}
}

// recall passes on to the store what was called back.
func (s *session) recall() error {
	s.r.mu.Lock()
	seqs := s.recalled
	s.recalled = nil
	spoiled := s.spoiled
	s.r.mu.Unlock()
	if len(seqs) == 0 || spoiled || s.ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.r.relay.recording, s.r.relay.config.Lease/3)
	defer cancel()
	recaller, _ := capability[Recaller](s.lease)
	if err := recaller.Recall(ctx, seqs); err != nil {
		s.spoil()
		return fmt.Errorf("recall: %w", err)
	}
	return nil
}
