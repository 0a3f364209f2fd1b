package poll

import (
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/numset"
	"github.com/postrider/postrider/relay"
)

// A pass looks for all missing numbers, in several statements where they are
// many, without a transaction held between them. It hands out what the first
// statement's snapshot could see, in order of number, before any newer row.
type pass struct {
	left  []numset.Range
	first *snapshot
	then  page // waits for the end of the pass
}

func (l *lease) needsFirstPass() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gaps.unprobed()
}

// startPass is for what was loaded, before any page.
func (l *lease) startPass() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.startPassLocked(page{full: true})
}

// startPassLocked holds the page back until the pass has ended. Its own missing
// numbers are not looked for yet: one that appears now may follow a message of
// the page.
func (l *lease) startPassLocked(then page) {
	all := l.gaps.all()
	l.pass = &pass{left: slices.Clone(all.Ranges()), then: then}
}

// stepPass runs one statement of the pass.
func (l *lease) stepPass(ctx context.Context) error {
	p := l.pass
	if len(p.left) == 0 {
		l.endPass()
		return nil
	}
	numbers, in, limit, left := p.next(l.store.cfg.PageSize)
	got, err := l.reader.read(ctx, numbers, in, limit, true)
	if err != nil {
		return err
	}
	if p.first == nil {
		p.first = got.seen
	}
	if got.cut || got.more {
		left = after(p.left, got.rows[len(got.rows)-1].Seq)
	}
	p.left = left
	// A row that committed after the first statement may follow another that
	// committed then and whose number was looked for already: it waits for the
	// next pass. (An id that is unfinished even now is not of this cluster: the
	// row was restored from a dump.)
	rows := slices.DeleteFunc(got.rows, func(d relay.Delivery) bool {
		xid := got.xids[d.Seq]
		return p.first.unfinished(xid) && !got.seen.unfinished(xid)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.found(rows)
	return nil
}

// after is the part of the ranges above a number.
func after(ranges []numset.Range, n int64) []numset.Range {
	for len(ranges) > 0 && ranges[0].Last <= n {
		ranges = ranges[1:]
	}
	if len(ranges) > 0 {
		ranges[0].First = max(ranges[0].First, n+1)
	}
	return ranges
}

// next is what one statement looks for, many short ranges by their numbers or
// part of a long one, and what is left after it.
func (p *pass) next(size int) (numbers []int64, in numset.Range, limit int, left []numset.Range) {
	left = p.left
	if left[0].Len() > int64(size) {
		return nil, left[0], size, left[1:]
	}
	for len(left) > 0 && int64(len(numbers))+left[0].Len() <= int64(size) {
		for n := left[0].First; n <= left[0].Last; n++ {
			numbers = append(numbers, n)
		}
		left = left[1:]
	}
	return numbers, numset.Range{First: 1, Last: 0}, 0, left
}

// endPass counts everything as looked for at the first snapshot, and lets the
// page that waited go.
func (l *lease) endPass() {
	p := l.pass
	l.pass = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.first != nil {
		l.gaps.probed(p.first, l.tail)
	}
	l.advance(p.then)
}

// askLocks looks for missing numbers that only foreign transactions keep alive:
// ones that are older than the fence but never wrote to the log.
func (l *lease) askLocks(ctx context.Context) error {
	now := time.Now()
	if now.Before(l.nextLocks) {
		return nil
	}
	l.nextLocks = now.Add(time.Second)
	l.mu.Lock()
	var old []*group
	for _, g := range l.gaps.groups {
		if g.fence != 0 && !g.orphan && now.Sub(g.fenced) > time.Second {
			old = append(old, g)
		}
	}
	l.mu.Unlock()
	if len(old) == 0 {
		return nil
	}
	writers, err := l.reader.writers(ctx, l.log)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range old {
		g.orphan = !slices.ContainsFunc(writers, func(low uint32) bool { return olderThan(low, g.fence) })
	}
	return nil
}
