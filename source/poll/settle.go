package poll

import (
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgstore"
)

const (
	// youngGap is how long missing numbers stay in the cursor's row before
	// they get a row of their own; most are gone by then.
	youngGap = time.Second
	// smallGroup is how many ranges the cursor's row holds of one group.
	smallGroup = 50
)

// Settle records outcomes and the position, and renews the lease.
func (l *lease) Settle(ctx context.Context, outcomes []relay.Outcome) error {
	l.mu.Lock()
	settled := settledRanges(outcomes)
	progress := pgstore.Progress{Pos: l.pos, Unsettled: l.held.Clone(), Gaps: map[int64]numset.Set{}, Checked: l.bounds.good.pos, CheckedXid: l.bounds.good.xid}
	for _, r := range settled {
		progress.Unsettled.Remove(r.First, r.Last)
	}
	for _, id := range l.gaps.gone {
		progress.Gaps[id] = numset.Set{}
	}
	groups := slices.Clone(l.gaps.groups)
	for _, g := range groups {
		l.saveGroup(g, &progress)
	}
	gone := len(l.gaps.gone)
	returns := false
	for i := range outcomes {
		returns = returns || outcomes[i].Delivery.Parked && outcomes[i].State == outbox.StateBlocked
	}
	if returns {
		l.returns++
	}
	l.mu.Unlock()

	xid, err := l.cursor.Settle(ctx, progress, outcomes)
	if returns {
		l.mu.Lock()
		l.returns++
		l.mu.Unlock()
	}
	if err != nil {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = l.cursor.Deadline()
	l.bounds.last = bound{progress.Pos, xid, time.Now()}
	for _, r := range settled {
		l.held.Remove(r.First, r.Last)
	}
	for i := range outcomes {
		o := &outcomes[i]
		if o.Returned() {
			continue
		}
		if o.Kept {
			l.parked[o.Delivery.Seq] = struct{}{} // it stays in hand
		} else if o.Delivery.Parked {
			delete(l.parked, o.Delivery.Seq)
		}
		if o.Delivery.Parked || o.State != outbox.StateSent {
			l.wake = true
		}
	}
	l.gaps.gone = l.gaps.gone[gone:]
	for _, g := range groups {
		if saved, ok := progress.Gaps[g.id]; ok {
			g.saved = saved
		}
		if g.fence == 0 {
			g.fence, g.fenced = xid, time.Now()
		}
	}
	return nil
}

// saveGroup puts a group where it belongs: into the cursor's row while it is
// young and small, afterwards into a row of its own, written when it changes.
func (l *lease) saveGroup(g *group, p *pgstore.Progress) {
	if g.saved.Empty() && time.Since(g.found) < youngGap && len(g.numbers.Ranges()) <= smallGroup {
		for _, r := range g.numbers.Ranges() {
			p.Unsettled.Add(r.First, r.Last)
		}
		return
	}
	if !slices.Equal(g.saved.Ranges(), g.numbers.Ranges()) {
		p.Gaps[g.id] = g.numbers.Clone()
	}
}

// settledRanges are the numbers of the log that have an outcome.
func settledRanges(outcomes []relay.Outcome) []numset.Range {
	numbers := make([]int64, 0, len(outcomes))
	for i := range outcomes {
		if o := &outcomes[i]; !o.Delivery.Parked && !o.Returned() {
			numbers = append(numbers, o.Delivery.Seq)
		}
	}
	slices.Sort(numbers)
	var ranges []numset.Range
	for _, n := range numbers {
		if last := len(ranges) - 1; last >= 0 && ranges[last].Last+1 >= n {
			ranges[last].Last = n
		} else {
			ranges = append(ranges, numset.Range{First: n, Last: n})
		}
	}
	return ranges
}
