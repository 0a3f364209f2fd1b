package awsmsg

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/postrider/postrider/outbox"
)

// MaxBatch is the most messages of one request:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html
// https://docs.aws.amazon.com/sns/latest/api/API_PublishBatch.html
const MaxBatch = 10

// Broker is SQS or SNS as the Sender needs it. Safe for concurrent use.
type Broker interface {
	// Resolve finds the address of a destination. Its error is classified as
	// Classify does.
	Resolve(ctx context.Context, destination string) (address string, err error)
	// Send makes one request. The id of an entry is its place in it, as
	// EntryID writes it. The error is that of the whole request, not yet
	// classified.
	Send(ctx context.Context, address string, entries []Entry) (Answer, error)
}

// Entry is one message of a request.
type Entry struct {
	Encoded
	// GroupID and DeduplicationID are empty unless the destination is FIFO.
	GroupID, DeduplicationID string
}

// EntryID is the id of the entry at the place i of its request.
func EntryID(i int) *string {
	id := strconv.Itoa(i)
	return &id
}

// Answer is what AWS said of each entry.
type Answer struct {
	Sent   []Sent
	Failed []Failed
}

// Sent is an entry that was acknowledged.
type Sent struct {
	ID       *string
	BrokerID string
	// Err says that something other than the message was acknowledged.
	Err error
}

// Failed is an entry that was refused.
type Failed struct {
	ID  *string
	Err *EntryError
}

// Sender publishes messages. All fields are required.
type Sender struct {
	// Package, Service and Kind are for error texts: "sqsbroker", "SQS", "queue".
	Package, Service, Kind string

	Broker      Broker
	Template    *Template
	Encoding    Encoding
	Concurrency int // requests of one Publish at a time
	// MessageBytes is the most that a message may have, RequestBytes the most
	// that several messages of one request may have. A message that has more
	// than RequestBytes goes alone, and is too large if it is refused.
	MessageBytes, RequestBytes int
}

// Publish implements outbox.Publisher. One refused entry never affects its
// neighbours: each message has the answer that AWS gave to it. When AWS refuses
// a whole request for what is in it, each of its messages is sent again alone.
//
// To destinations whose name ends in .fifo equal keys of one call are sent in
// their order, one after the other's acknowledgement. Those behind one that is
// to be tried again are not sent and get its class; a permanent failure holds
// nobody up.
func (s *Sender) Publish(ctx context.Context, msgs []outbox.Message) []outbox.Result {
	call := &publishing{
		Sender:  s,
		msgs:    msgs,
		results: make([]outbox.Result, len(msgs)),
		slots:   make(chan struct{}, s.Concurrency),
	}
	byDestination := map[string][]int{}
	for i := range msgs {
		destination, err := s.Template.Expand(&msgs[i])
		if err != nil {
			call.results[i].Err = outbox.Permanent(fmt.Errorf("%s: %w", s.Package, err))
			continue
		}
		byDestination[destination] = append(byDestination[destination], i)
	}
	var wg sync.WaitGroup
	for destination, indices := range byDestination {
		wg.Go(func() { call.toDestination(ctx, destination, indices) })
	}
	wg.Wait()
	return call.results
}

// publishing is one call of Publish. Each result is written by one goroutine.
type publishing struct {
	*Sender
	msgs    []outbox.Message
	results []outbox.Result
	slots   chan struct{}
}

// item is one message on its way.
type item struct {
	index int
	entry Entry
}

type target struct{ destination, address string }

// at is how error texts begin.
func (c *publishing) at(destination string) string {
	return fmt.Sprintf("%s: %s %q", c.Package, c.Kind, destination)
}

func (c *publishing) toDestination(ctx context.Context, destination string, indices []int) {
	fifo := strings.HasSuffix(destination, ".fifo")
	items := make([]item, 0, len(indices))
	for _, i := range indices {
		it, err := c.prepare(i, fifo)
		if err != nil {
			c.results[i].Err = outbox.Permanent(fmt.Errorf("%s: %w", c.at(destination), err))
			continue
		}
		items = append(items, it)
	}
	if len(items) == 0 {
		return
	}
	if !c.acquire(ctx) {
		c.failAll(items, c.nothingSent(ctx, destination))
		return
	}
	address, err := c.Broker.Resolve(ctx, destination)
	c.release()
	if err != nil {
		c.failAll(items, outbox.Unsent(c.Template.missing(err)))
		return
	}
	to := target{destination: destination, address: address}
	if !fifo {
		c.sendAll(ctx, to, items)
		return
	}
	for wave := range waves(items) {
		c.sendAll(ctx, to, c.behindFailures(wave, items))
	}
}

func (c *publishing) prepare(i int, fifo bool) (item, error) {
	m := &c.msgs[i]
	e, err := Encode(m, c.Encoding, c.Service)
	if err != nil {
		return item{}, err
	}
	if e.Size > c.MessageBytes {
		return item{}, fmt.Errorf("message has %d bytes with its attributes, at most %d are allowed: store the payload elsewhere and send a reference", e.Size, c.MessageBytes)
	}
	it := item{index: i, entry: Entry{Encoded: e}}
	if fifo {
		it.entry.GroupID, it.entry.DeduplicationID = GroupID(m), DeduplicationID(m)
	}
	return it, nil
}

// sendAll cuts the items into requests and sends them, several at a time.
func (c *publishing) sendAll(ctx context.Context, to target, items []item) {
	var wg sync.WaitGroup
	for len(items) > 0 {
		n := c.nextBatch(items)
		batch := items[:n]
		items = items[n:]
		wg.Go(func() {
			if !c.acquire(ctx) {
				c.failAll(batch, c.nothingSent(ctx, to.destination))
				return
			}
			defer c.release()
			c.send(ctx, to, batch)
		})
	}
	wg.Wait()
}

// nextBatch is how many of the first items go into one request: at least one.
func (c *publishing) nextBatch(items []item) int {
	n, size := 1, items[0].entry.Size
	for n < len(items) && n < MaxBatch && size+items[n].entry.Size <= c.RequestBytes {
		size += items[n].entry.Size
		n++
	}
	return n
}

// send makes one request, and one for each message where AWS refused all of
// them for what may be in one.
func (c *publishing) send(ctx context.Context, to target, batch []item) {
	entries := make([]Entry, len(batch))
	for i := range batch {
		entries[i] = batch[i].entry
	}
	answer, err := c.Broker.Send(ctx, to.address, entries)
	switch {
	case err == nil && len(answer.Sent)+len(answer.Failed) == 0:
		c.failAll(batch, outbox.Unavailable(fmt.Errorf("%s: the answer says nothing on any message: it is hardly one of %s", c.at(to.destination), c.Service)))
	case err == nil:
		c.settle(to, batch, answer)
	case len(batch) > 1 && aboutContents(err):
		for i := range batch {
			c.send(ctx, to, batch[i:i+1])
		}
	default:
		tooLarge := len(batch) == 1 && entries[0].Size > c.RequestBytes && aboutContents(err)
		err = fmt.Errorf("%s: send: %w", c.at(to.destination), err)
		if tooLarge {
			err = outbox.Permanent(fmt.Errorf("%w (the message has %d bytes with its attributes)", err, entries[0].Size))
		} else {
			err = Classify(ctx, err)
		}
		c.failAll(batch, c.Template.missing(err))
	}
}

func (c *publishing) settle(to target, batch []item, answer Answer) {
	answered := make([]bool, len(batch))
	result := func(id *string) *outbox.Result {
		if id == nil {
			return nil
		}
		i, err := strconv.Atoi(*id)
		if err != nil || i < 0 || i >= len(batch) {
			return nil
		}
		answered[i] = true
		return &c.results[batch[i].index]
	}
	for _, sent := range answer.Sent {
		r := result(sent.ID)
		if r == nil {
			continue
		}
		r.BrokerID = sent.BrokerID
		if sent.Err != nil {
			r.Err = outbox.Retryable(fmt.Errorf("%s acknowledged something else: %w", c.at(to.destination), sent.Err))
		}
	}
	for _, failed := range answer.Failed {
		r := result(failed.ID)
		if r == nil {
			continue
		}
		err := ClassifyEntry(fmt.Errorf("%s refused the message: %w", c.at(to.destination), failed.Err), len(answer.Sent) > 0)
		*r = outbox.Result{Err: c.Template.missing(err)}
	}
	for i := range batch {
		if !answered[i] {
			c.results[batch[i].index].Err = outbox.Retryable(fmt.Errorf("%s answered the request without a word on this message", c.at(to.destination)))
		}
	}
}

func (c *publishing) nothingSent(ctx context.Context, destination string) error {
	return outbox.Unsent(ended(ctx, fmt.Errorf("%s: nothing sent: %w", c.at(destination), ctx.Err())))
}

func (c *publishing) failAll(items []item, err error) {
	for _, it := range items {
		c.results[it.index].Err = err
	}
}

func (c *publishing) acquire(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case c.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *publishing) release() { <-c.slots }

// CheckConcurrency returns the number of requests at a time that n means.
func CheckConcurrency(n int) (int, error) {
	if n < 0 {
		return n, fmt.Errorf("concurrency %d is negative", n)
	}
	if n == 0 {
		return 4, nil
	}
	return n, nil
}
