package poll

import (
	"context"
	"errors"
	"time"
)

// errAltered: what the state rests on may not hold any more.
var errAltered = errors.New("the log's sequence was altered or begun anew, or the server was started again: loading the state anew")

// watchOver looks for what somebody has changed about the log by hand, at the
// sequence's file with every poll and at everything else now and then.
func (l *lease) watchOver(ctx context.Context, t tick) error {
	if l.file == 0 {
		l.file = t.file
	}
	if l.file != t.file {
		return errAltered
	}
	now := time.Now()
	if now.After(l.nextGuard) {
		l.nextGuard = now.Add(guardEvery)
		if err := l.store.guard(ctx, l.reader.shard); err != nil {
			return err
		}
		if err := l.cursor.CheckReuse(ctx); err != nil {
			return err
		}
	}
	if now.After(l.nextHeal) {
		l.nextHeal = now.Add(healEvery)
		var err error
		if l.healed, err = l.cursor.Heal(ctx, l.healed); err != nil {
			return err
		}
	}
	return nil
}

// bound: whoever was given a number up to pos has an id below xid.
type bound struct {
	pos int64
	xid uint64
	at  time.Time // when it was known
}

// bounds keep a bound back until a poll that began after it has shown that the
// sequence had not gone back. Otherwise a settle after that would take for seen
// what was given an old number since.
type bounds struct {
	last, next, good bound
}

// hold takes note that the sequence was well when a poll had begun.
func (b *bounds) hold(began time.Time) {
	if b.next.at.Before(began) {
		b.good, b.next = b.next, b.last
	}
}
