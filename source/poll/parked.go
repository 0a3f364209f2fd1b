package poll

import (
	"context"
	"time"

	"github.com/postrider/postrider/relay"
)

// parkedDue reports whether it is time to look at the parked messages.
func (l *lease) parkedDue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.parked) < maxParkedOut && l.returns%2 == 0 && (l.wake || !time.Now().Before(l.nextParked))
}

// readParked hands parked messages out that are due. While a settle gives some
// of them back, the statement may see those as due that come behind them, but
// would leave them themselves out: what it returned then counts for nothing.
func (l *lease) readParked(ctx context.Context, max int) error {
	l.mu.Lock()
	l.wake = false
	returns := l.returns
	except := make([]int64, 0, len(l.parked))
	for seq := range l.parked {
		except = append(except, seq)
	}
	l.mu.Unlock()
	limit := min(max, maxParkedOut-len(except))
	due, next, err := l.cursor.Due(ctx, limit, except)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.wake = true
		return err
	}
	if l.returns != returns {
		l.wake = true
		return nil
	}
	bytes := 0
	for i := range due {
		l.parked[due[i].Seq] = struct{}{}
		bytes += len(due[i].Message.Payload)
	}
	l.ready = append(l.ready, due...)
	switch {
	case len(due) == limit || bytes >= relay.PageBytes:
		l.wake = true
	case next < 0 || next > parkedPoll:
		next = parkedPoll
	}
	l.nextParked = time.Now().Add(next)
	return nil
}
