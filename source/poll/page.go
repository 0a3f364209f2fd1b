package poll

import (
	"cmp"
	"context"
	"slices"

	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgstore"
)

// readPage reads the next rows, and with them the missing numbers while those
// are few. The tail was read before.
func (l *lease) readPage(ctx context.Context, max int) error {
	limit := min(max, l.store.cfg.PageSize)
	l.mu.Lock()
	pos := l.pos
	inline := l.gaps.total() <= int64(l.store.cfg.InlineGaps)
	var numbers []int64
	if inline {
		all := l.gaps.all()
		numbers = slices.Collect(all.All())
	}
	l.mu.Unlock()

	last := int64(lastNumber)
	if pos < pgstore.FarNumber && l.tail < pgstore.FarNumber {
		last = pgstore.FarNumber - 1 // whoever has a greater number has chosen it
	}
	got, err := l.reader.read(ctx, numbers, numset.Range{First: pos + 1, Last: last}, limit, false)
	if err != nil {
		return err
	}
	split, _ := slices.BinarySearchFunc(got.rows, pos+1, func(d relay.Delivery, n int64) int { return cmp.Compare(d.Seq, n) })
	late, fresh, seen := got.rows[:split], got.rows[split:], got.seen

	l.mu.Lock()
	defer l.mu.Unlock()
	if inline {
		l.found(late)
		if got.cut && len(fresh) == 0 {
			return nil // not all of them were looked for
		}
		l.gaps.probed(seen, l.tail)
	}
	next := page{fresh, got.more, seen}
	if !inline && l.gaps.worthProbing(seen, l.tail) {
		l.startPassLocked(next)
		return nil
	}
	l.advance(next)
	return nil
}

// found hands rows out whose numbers were missing.
func (l *lease) found(late []relay.Delivery) {
	for i := range late {
		l.gaps.remove(late[i].Seq)
	}
	l.hand(late)
}

// page is the next rows of the log, as one statement saw them.
type page struct {
	rows []relay.Delivery
	full bool // there may be more
	seen *snapshot
}

// advance hands the rows of the page out and moves the position past them and,
// if the page was not full, to the tail. What is not among the rows is missing.
func (l *lease) advance(p page) {
	end := l.pos
	var missing numset.Set
	for i := range p.rows {
		missing.Add(end+1, p.rows[i].Seq-1)
		end = p.rows[i].Seq
	}
	if !p.full {
		missing.Add(end+1, l.tail)
		end = max(end, l.tail)
	}
	l.pos = end
	l.gaps.add(missing, p.seen)
	l.hand(p.rows)
}

// remembering is match without asking again for the topic of the row before.
// For one goroutine at a time.
func remembering(match func(topic string) bool) func(topic string) bool {
	var last string // no topic is empty
	matches := false
	return func(topic string) bool {
		if topic != last {
			last, matches = topic, match(topic)
		}
		return matches
	}
}

// hand puts rows that match the route's topics in line; the others are done.
func (l *lease) hand(rows []relay.Delivery) {
	n := 0
	var run numset.Range // of numbers that are held
	for i := range rows {
		if !l.match(rows[i].Message.Topic) {
			continue
		}
		if n != i {
			rows[n] = rows[i]
		}
		seq := rows[n].Seq
		rows[n].Again = seq <= l.cursor.Pos
		if n > 0 && seq == run.Last+1 {
			run.Last = seq
		} else {
			if n > 0 {
				l.held.Add(run.First, run.Last)
			}
			run = numset.Range{First: seq, Last: seq}
		}
		n++
	}
	if n == 0 {
		return
	}
	l.held.Add(run.First, run.Last)
	clear(rows[n:])
	if rows = rows[:n]; len(l.ready) == 0 {
		l.ready = rows
	} else {
		l.ready = append(l.ready, rows...)
	}
}
