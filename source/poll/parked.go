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
	return l.parkedDueAt(time.Now())
}

func (l *lease) parkedDueAt(now time.Time) bool {
	return len(l.parked) < maxParkedOut && l.returns%2 == 0 && (l.wake || !now.Before(l.nextParked))
}

// turn tells what is read next. What is due at once (a long line that goes on)
// is first in order, so if there is more of that than fits in, those that waited
// for a time have every other turn, and some room of their own.
func (l *lease) turn(max, out int) (timed bool, limit int) {
	timed = l.crowded && !l.timed || out >= maxAtOnceOut
	if timed {
		return true, min(max, maxParkedOut-out)
	}
	return false, min(max, maxAtOnceOut-out)
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
	timed, limit := l.turn(max, len(except))
	due, next, err := l.cursor.Due(ctx, limit, timed, except)
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
	if !timed {
		l.crowded = len(due) == limit
	}
	l.timed, l.quiet = timed, false
	switch {
	case timed && len(except) < maxAtOnceOut:
		l.wake = true // for the others
	case len(due) == limit || bytes >= relay.PageBytes:
		l.wake = true
	case next < 0 || next > parkedPoll:
		next, l.quiet = parkedPoll, len(l.parked) == 0
	}
	l.nextParked = time.Now().Add(next)
	return nil
}
