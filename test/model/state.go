package model

import (
	"hash/maphash"
	"math/bits"
)

// The bounds of every instance. They size the state, which is a plain value: it
// is copied for each step and hashed as it is.
const (
	maxNumbers = 8 // of the log, counted from 1
	maxWriters = 4
	maxKeys    = 2 // counted from 1; key 0 is the empty one, which promises no order
	maxGroups  = 4
	maxRelays  = 2
)

// A set of numbers of the log.
type set uint8

func only(n uint8) set         { return 1 << (n - 1) }
func upTo(n uint8) set         { return 1<<n - 1 }
func (s set) has(n uint8) bool { return s&only(n) != 0 }
func (s set) len() int         { return bits.OnesCount8(uint8(s)) }
func (s set) first() uint8     { return uint8(bits.TrailingZeros8(uint8(s))) + 1 }
func (s set) each(visit func(uint8)) { // in order
	for ; s != 0; s &= s - 1 {
		visit(s.first())
	}
}

// lowest are at most limit of the numbers.
func (s set) lowest(limit int) set {
	var out set
	for ; s != 0 && limit > 0; limit-- {
		out |= s & -s
		s &= s - 1
	}
	return out
}

// state is everything that the model knows of one moment.
type state struct {
	// PostgreSQL: transactions, the sequence and log of the one shard, the
	// route's row of cursor, and parked in order of arrival.
	next    uint8 // the id that the next transaction gets
	xmax    uint8 // one more than the latest finished id, as a snapshot's
	last    uint8 // the sequence's last_value; 0 is a sequence that was never called
	writers [maxWriters]writer
	log     [maxNumbers]row
	cursor  cursor
	parked  list

	relays [maxRelays]lease

	// The broker, and what only the checker knows.
	arrived set // was delivered at least once
	acked   set // and some relay knows it
	late    set // in flight from a process that is gone: may still arrive
	excused set // failed under release, released or discarded: without a place in their key's order
	spent   [kindsOfTrouble]uint8
}

// writer is the transaction of an application.
type writer struct {
	stage stage
	xid   uint8 // 0: it has none
	drawn uint8 // how many of its rows have a number
}

type stage uint8

const (
	idle stage = iota
	open
	committed
	rolledBack
)

// row tells whose row has a number: the writer counted from 1, 0 for nobody.
type row struct{ writer, index uint8 }

// cursor is the row of the cursor table, and the gap table's for it. A relay's
// token is its own number; what it held before a restart is never valid again.
type cursor struct {
	pos       uint8
	unsettled set
	token     uint8 // of relay token-1; 0: nobody's
	expired   bool  // lease_until is over
}

// entry is a message with what is or becomes of it: an item in hand, an outcome,
// or a row of parked.
type entry struct {
	seq    uint8
	state  what
	closes bool // a row, and an outcome: it stands in its key's way; an item: it is counted so
	due    bool // a row: is to be handed out
	parked bool // an item and an outcome: it came from parked
	free   bool // an item and an outcome: it has lost its place in its key
	heard  bool // an item and an outcome: an operator has settled it already
}

type what uint8

const (
	waiting    what = iota + 1 // in hand: ready, or behind its key's head
	publishing                 // in hand: the broker has been asked
	releasing                  // in hand: a head whose outcome is not committed yet

	sent // outcomes, and states of parked
	retrying
	blocked
	failed
	discarded
)

// list is entries in order.
type list struct {
	n  uint8
	of [maxNumbers]entry
}

func (l *list) all() []entry { return l.of[:l.n] }

func (l *list) add(e entry) {
	l.of[l.n] = e
	l.n++
}

func (l *list) find(seq uint8) *entry {
	for i := range l.all() {
		if l.of[i].seq == seq {
			return &l.of[i]
		}
	}
	return nil
}

func (l *list) remove(j int) {
	copy(l.of[j:], l.of[j+1:l.n])
	l.n--
	l.of[l.n] = entry{}
}

// index is where a message is that is in this state, -1 if it is not there.
func (l *list) index(seq uint8, state what) int {
	for j, e := range l.all() {
		if e.seq == seq && e.state == state {
			return j
		}
	}
	return -1
}

func (l *list) numbers() set {
	var s set
	for _, e := range l.all() {
		s |= only(e.seq)
	}
	return s
}

// lease is one relay with the lease that it has, if any: what source/poll's
// lease, relay's session and pgstore's Cursor keep in memory.
type lease struct {
	phase phase
	fresh bool // its deadline is not over, by its own clock

	// source/poll
	pos, tail uint8
	held      set // read and not settled
	parkedOut set // parked messages handed out
	ngroups   uint8
	groups    [maxGroups]group
	pass      pass
	call      call
	before    snapshot // of the read before; kept for one mistake alone

	// relay
	hand     list
	outcomes list
	closed   [maxKeys]uint8 // how many parked messages stand in each key's way
	stale    uint8          // bits of keys with a refusal that is not committed
	refusals uint8          // bits of keys with a refusal among the outcomes
	refused  [maxKeys]uint8 // the message of each key that was refused last
	mine     set            // acknowledged under this lease

	settle settling
}

type phase uint8

const (
	away   phase = iota // has no lease
	taking              // its takeover is a transaction that is open
	working
	stopping
	stopped
)

// group is numbers that were missing when one statement looked for them.
type group struct {
	seen    snapshot
	numbers set
	fence   uint8
	orphan  bool
	known   bool // to the settle that is under way, which will give it its fence
}

// pass looks for all missing numbers in several statements.
type pass struct {
	first snapshot
	seen  snapshot // of the page that waits, as are the next two
	rows  set
	full  bool
	left  set
	on    bool
}

// call is a statement of Receive that was executed and whose answer is not
// dealt with yet.
type call struct {
	seen  snapshot
	kind  statement
	found set
	stale uint8 // keys with a refusal that was committed since
	void  bool  // parked messages were given back since
	cut   bool  // the rest was not looked for
}

type statement uint8

const (
	none statement = iota
	page
	passing
	due
)

// settling is a Settle under way. The server may still carry it out when the
// relay that sent it is gone.
type settling struct {
	at        settleStage
	xid       uint8
	pos       uint8
	unsettled set
	outcomes  list
	refusals  uint8
	passed    bool // a fence by subquery has let it pass
	orphan    bool // nobody waits for its answer
	ranOut    bool // the lease ran out since it was sent
}

type settleStage uint8

const (
	notSettling settleStage = iota
	queued                  // waits for the cursor's row
	written                 // its transaction is open
	answered                // it is committed, the answer is on its way
)

// snapshot is what a statement could see, in one number: the ids that are open
// below the end of it, and the end. 0 is none.
type snapshot uint32

const maxXid = 24

const (
	// probed stands for any snapshot, where only that there is one matters.
	probed snapshot = 1
	// worth stands for a snapshot since which something has finished.
	worth snapshot = 2
)

func newSnapshot(xmax uint8, xip uint32) snapshot { return snapshot(uint32(xmax)<<maxXid | xip) }
func (s snapshot) xmax() uint8                    { return uint8(s >> maxXid) }
func (s snapshot) xip() uint32                    { return uint32(s) & (1<<maxXid - 1) }

// unfinished: ids at or above xmax are not listed and count as unfinished.
func (s snapshot) unfinished(xid uint8) bool {
	return xid >= s.xmax() || s.xip()&(1<<xid) != 0
}

// openBelow reports whether an id below limit is unfinished.
func (s snapshot) openBelow(limit uint8) bool {
	return s.listedBelow(limit) || s.xmax() < limit
}

func (s snapshot) listedBelow(limit uint8) bool { return s.xip()&(1<<limit-1) != 0 }

// finishedSince reports whether any transaction below limit that was unfinished
// in s had finished by the later snapshot. limit 0 is no limit.
func (s snapshot) finishedSince(later snapshot, limit uint8) bool {
	if limit == 0 {
		limit = max(s.xmax(), later.xmax())
	}
	for xid := uint8(1); xid < limit; xid++ {
		if s.unfinished(xid) && !later.unfinished(xid) {
			return true
		}
	}
	return false
}

// hash tells states apart: 128 bits, so that two of them are taken for one with
// a chance that is no concern.
type hash [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func (s *state) hash() hash {
	return hash{maphash.Comparable(seeds[0], *s), maphash.Comparable(seeds[1], *s)}
}
