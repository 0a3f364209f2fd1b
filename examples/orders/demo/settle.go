package demo

import (
	"context"
	"time"

	"github.com/postrider/postrider/examples/orders/order"
)

// lookEvery is how often settle looks at the databases when the journal has
// nothing open: orders of an earlier run are not in it.
const lookEvery = 200 * time.Millisecond

// settle waits until every service has every order, those of earlier runs too,
// or nothing has moved for so long.
func (s *shop) settle(ctx context.Context, patience time.Duration) (report, error) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	_, before, _ := s.journal.Progress()
	for {
		open, moves, changed := s.journal.Progress()
		if moves != before {
			before = moves
			limit.Reset(patience)
		}
		if open == 0 {
			if r, err := s.look(ctx); err != nil || r.err() == nil {
				return r, err
			}
			changed = nil // it has nothing more to say; look again in a moment
		}
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
			return report{}, ctx.Err()
		case <-limit.C:
			return s.look(ctx)
		}
	}
}

// look compares all sides as they are now.
func (s *shop) look(ctx context.Context) (report, error) {
	// The orders first: a service cannot lack one that is placed meanwhile. It
	// may have some more, which a second look settles.
	orders, err := order.List(ctx, s.peers.db.DB)
	if err != nil {
		return report{}, err
	}
	r := report{orders: len(orders)}
	counts := s.journal.Counts()
	for i, reaction := range s.reactions {
		a, err := reaction.audit(ctx, orders)
		if err != nil {
			return report{}, err
		}
		r.services = append(r.services, serviceReport{
			reaction: reaction, audit: a, duplicates: counts.Services[i].Repeats, delays: s.journal.Delays(i),
		})
	}
	return r, nil
}
