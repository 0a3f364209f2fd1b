package relay

import (
	"context"
	"sync"
	"time"
)

// portion is this relay's part of one route's shards: which it has, and how
// many it may have. Its methods are safe for concurrent use.
type portion struct {
	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when it may be worth trying again
	shards  int           // of the route
	quota   int           // how many this relay is to hold
	paused  bool
	taken   map[int]*taken
	tries   map[int]time.Time // shards not to be had: not before a look at or after that time
	count   int               // of shards ever held
}

// taken is a shard that is held, or asked for.
type taken struct {
	nth    int                // 0: only asked for; otherwise a later one was taken later
	giveUp context.CancelFunc // ends what is done with it
	ending bool
}

func newPortion(shards int) *portion {
	return &portion{changed: make(chan struct{}), shards: shards, taken: make(map[int]*taken), tries: make(map[int]time.Time)}
}

// wake lets all that wait in ask look again. The caller holds mu.
func (p *portion) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// ask waits until the shard is one to be asked for; false if ctx ended before.
// Then free, or hold and free, must follow. It calls idle when the shard is
// none of this relay's business for now.
func (p *portion) ask(ctx context.Context, shard int, idle func()) bool {
	for ctx.Err() == nil {
		p.mu.Lock()
		room := !p.paused && len(p.taken) < p.quota
		_, later := p.tries[shard]
		if room && !later {
			p.taken[shard] = &taken{}
			p.mu.Unlock()
			return true
		}
		changed := p.changed
		p.mu.Unlock()
		if !room {
			idle()
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return false
}

// hold notes that the shard asked for is held. The context ends when it is to
// be given up; call done, and free, when that has happened.
func (p *portion) hold(ctx context.Context, shard int) (held context.Context, done context.CancelFunc) {
	held, done = context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	p.taken[shard] = &taken{nth: p.count, giveUp: done}
	p.shed()
	return held, done
}

// free notes that the shard is not held, or asked for, any more.
func (p *portion) free(shard int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, shard)
	p.wake()
}

// refused is free for a shard that another relay has: it is not asked for
// again before a look that comes after that time.
func (p *portion) refused(shard int, notBefore time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, shard)
	p.tries[shard] = notBefore
	p.wake()
}

// failed is free for a shard that the store did not hand out for another
// reason. Where not all shards are this relay's, others get their turn first.
func (p *portion) failed(shard int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, shard)
	if p.quota < p.shards {
		p.tries[shard] = time.Time{}
	}
	p.wake()
}

// set is what a look at the roster ends with: surplus shards are given up, and
// missing ones may be asked for again. With afresh, all of them may be.
func (p *portion) set(quota int, paused, afresh bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news := quota != p.quota || paused != p.paused
	p.quota, p.paused = quota, paused
	p.shed()
	for shard, notBefore := range p.tries {
		if afresh || !now.Before(notBefore) {
			delete(p.tries, shard)
			news = true
		}
	}
	if news {
		p.wake()
	}
}

// shed gives up what is held above the quota, beginning with what was taken
// last. The caller holds mu.
func (p *portion) shed() {
	may := p.quota
	if p.paused {
		may = 0
	}
	for {
		var last *taken
		held := 0
		for _, t := range p.taken {
			if t.nth == 0 || t.ending {
				continue
			}
			held++
			if last == nil || t.nth > last.nth {
				last = t
			}
		}
		if held <= may {
			return
		}
		last.ending = true
		last.giveUp()
	}
}

// state is what figures tell.
func (p *portion) state() (quota int, paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.quota, p.paused
}
