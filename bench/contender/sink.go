package contender

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Sink is the broker of the bench: it counts what it gets, after the delay that
// a batch takes. Safe for concurrent use.
type Sink struct {
	delay time.Duration
	seen  []atomic.Uint64 // a bit for each message
	times []atomic.Int64  // when each message came, in nanoseconds since 1970; nil: not noted
	count atomic.Int64
	came  chan struct{} // has something in it when count grew

	mu    sync.Mutex
	begun time.Time
	first time.Time
	last  time.Time
	head  int // messages in the first batch
}

// NewSink makes a sink for messages with numbers below limit.
func NewSink(delay time.Duration, limit int) *Sink {
	return &Sink{delay: delay, seen: make([]atomic.Uint64, limit/64+1), came: make(chan struct{}, 1)}
}

// NoteTimes makes the sink note when each message comes.
func (s *Sink) NoteTimes() { s.times = make([]atomic.Int64, len(s.seen)*64) }

// Begin starts the clock.
func (s *Sink) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = time.Now()
}

// Count is how many messages came, doubles included.
func (s *Sink) Count() int { return int(s.count.Load()) }

// Came has something in it when messages came since it was last received from.
func (s *Sink) Came() <-chan struct{} { return s.came }

// Batch takes a whole batch of messages, whose numbers were given to Mark.
func (s *Sink) Batch(n int) {
	if s.delay > 0 {
		time.Sleep(s.delay)
	}
	s.add(n)
}

// One takes one message of a contender that hands out one at a time; every
// batch-th of them takes the delay, so that it costs what a batch would.
func (s *Sink) One(batch int) {
	if s.delay > 0 && s.count.Load()%int64(batch) == 0 {
		time.Sleep(s.delay)
	}
	s.add(1)
}

func (s *Sink) add(n int) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first.IsZero() {
		s.first, s.head = now, n
	}
	s.last = now
	s.count.Add(int64(n))
	select {
	case s.came <- struct{}{}:
	default:
	}
}

// Mark notes that a message came.
func (s *Sink) Mark(n int) {
	if n < 0 || n/64 >= len(s.seen) {
		return
	}
	s.seen[n/64].Or(1 << (n % 64))
	if s.times != nil {
		s.times[n].CompareAndSwap(0, time.Now().UnixNano())
	}
}

// numberAt is where a payload has its number: {"n":"000000123".
const numberAt = len(`{"n":"`)

// MarkPayload notes that the message with this payload came.
func (s *Sink) MarkPayload(payload []byte) { s.Mark(numberOf(payload)) }

// numberOf is the number in a payload, or -1.
func numberOf(payload []byte) int {
	if len(payload) < numberAt+9 {
		return -1
	}
	return digits(payload[numberAt : numberAt+9])
}

// digits is the number that is written, or -1.
func digits[T string | []byte](text T) int {
	n := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return -1
		}
		n = n*10 + int(text[i]-'0')
	}
	return n
}

// Tally is what a sink got.
type Tally struct {
	Count    int           // messages, doubles included
	Distinct int           // different messages
	Sum      int           // of the numbers of the different messages
	Elapsed  time.Duration // from the start of the clock to the last message
	ToFirst  time.Duration // from the start of the clock to the first message
	Head     int           // messages in the first batch
	Times    []int64       // when each message came, in nanoseconds since 1970, 0 for never; if noted
}

// Tally sums up.
func (s *Sink) Tally() Tally {
	t := Tally{Count: s.Count()}
	for i := range s.seen {
		for word := s.seen[i].Load(); word != 0; word &= word - 1 {
			t.Distinct++
			t.Sum += i*64 + bits.TrailingZeros64(word)
		}
	}
	for i := range s.times {
		t.Times = append(t.Times, s.times[i].Load())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Head = s.head
	if !s.first.IsZero() {
		t.Elapsed, t.ToFirst = s.last.Sub(s.begun), s.first.Sub(s.begun)
	}
	return t
}
