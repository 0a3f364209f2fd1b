package sqsbroker

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/postrider/postrider/outbox"
)

// PublisherConfig says where and how to publish.
type PublisherConfig struct {
	// Client is the caller's; required.
	Client *sqs.Client
	// Queue is a name, URL or ARN; required. {topic}, {key} and {type} stand
	// for the message's own: then a queue that does not exist is the
	// message's fault (permanent), otherwise everybody's (unavailable, with an
	// alarm).
	Queue string
	// Encoding of payloads. Empty: Raw.
	Encoding Encoding
	// Concurrency is the most requests that one Publish has at SQS at a time.
	// 0: 4.
	Concurrency int
	// MaxBytes lowers MaxMessageBytes and MaxBatchBytes for endpoints or
	// regions that take less. 0: the limits themselves.
	MaxBytes int
}

// Publisher sends messages to SQS. It implements outbox.Publisher.
type Publisher struct {
	cfg  PublisherConfig
	dest *destinations
}

var _ outbox.Publisher = (*Publisher)(nil)

// NewPublisher reports all problems of the configuration together. It sends
// nothing: the queue is looked up by the first Publish.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	var errs []error
	if cfg.Client == nil {
		errs = append(errs, errors.New("no client is given"))
	}
	dest, err := newDestinations(cfg.Client, cfg.Queue)
	if err != nil {
		errs = append(errs, err)
	}
	switch cfg.Encoding {
	case "":
		cfg.Encoding = Raw
	case Raw, Base64:
	default:
		errs = append(errs, fmt.Errorf("encoding %q is not known: use %q or %q", cfg.Encoding, Raw, Base64))
	}
	switch {
	case cfg.Concurrency < 0:
		errs = append(errs, fmt.Errorf("concurrency %d is negative", cfg.Concurrency))
	case cfg.Concurrency == 0:
		cfg.Concurrency = 4
	}
	switch {
	case cfg.MaxBytes < 0 || cfg.MaxBytes > MaxBatchBytes:
		errs = append(errs, fmt.Errorf("at most %d bytes: SQS takes 1 to %d", cfg.MaxBytes, MaxBatchBytes))
	case cfg.MaxBytes == 0:
		cfg.MaxBytes = MaxBatchBytes
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("sqsbroker: publisher: %w", err)
	}
	return &Publisher{cfg: cfg, dest: dest}, nil
}

// Publish implements outbox.Publisher. One refused entry never affects its
// neighbours: each message has the answer that SQS gave to it. When SQS refuses
// a whole request for what is in it, each of its messages is sent again alone.
//
// On FIFO queues equal keys of one call are sent in their order, one after the
// other's acknowledgement. Those behind one that is to be tried again are not
// sent and get its class; a permanent failure holds nobody up.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) []outbox.Result {
	call := &publishing{
		Publisher: p,
		msgs:      msgs,
		results:   make([]outbox.Result, len(msgs)),
		slots:     make(chan struct{}, p.cfg.Concurrency),
	}
	byQueue := map[string][]int{}
	for i := range msgs {
		queue, err := p.dest.expand(&msgs[i])
		if err != nil {
			call.results[i].Err = outbox.Permanent(fmt.Errorf("sqsbroker: %w", err))
			continue
		}
		byQueue[queue] = append(byQueue[queue], i)
	}
	var wg sync.WaitGroup
	for queue, indices := range byQueue {
		wg.Go(func() { call.toQueue(ctx, queue, indices) })
	}
	wg.Wait()
	return call.results
}

// publishing is one call of Publish. Each result is written by one goroutine.
type publishing struct {
	*Publisher
	msgs    []outbox.Message
	results []outbox.Result
	slots   chan struct{}
}

// item is one message on its way.
type item struct {
	index int
	entry types.SendMessageBatchRequestEntry
	size  int
}

func (it *item) group() string { return aws.ToString(it.entry.MessageGroupId) }

func (c *publishing) toQueue(ctx context.Context, queue string, indices []int) {
	fifo := strings.HasSuffix(queue, ".fifo")
	items := make([]item, 0, len(indices))
	for _, i := range indices {
		it, err := c.prepare(i, fifo)
		if err != nil {
			c.results[i].Err = outbox.Permanent(fmt.Errorf("sqsbroker: queue %q: %w", queue, err))
			continue
		}
		items = append(items, it)
	}
	if len(items) == 0 {
		return
	}
	if !c.acquire(ctx) {
		c.failAll(items, ended(ctx, fmt.Errorf("sqsbroker: nothing sent to queue %q: %w", queue, ctx.Err())))
		return
	}
	url, err := c.dest.resolve(ctx, queue)
	c.release()
	if err != nil {
		c.failAll(items, err)
		return
	}
	to := target{queue: queue, url: url}
	if !fifo {
		c.sendAll(ctx, to, items)
		return
	}
	for wave := range waves(items) {
		c.sendAll(ctx, to, c.behindFailures(wave, items))
	}
}

type target struct{ queue, url string }

func (c *publishing) prepare(i int, fifo bool) (item, error) {
	m := &c.msgs[i]
	e, err := encode(m, c.cfg.Encoding)
	if err != nil {
		return item{}, err
	}
	if e.size > c.cfg.MaxBytes {
		return item{}, fmt.Errorf("message has %d bytes with its attributes, at most %d are allowed: store the payload elsewhere and send a reference", e.size, c.cfg.MaxBytes)
	}
	it := item{index: i, size: e.size, entry: types.SendMessageBatchRequestEntry{
		MessageBody:       aws.String(e.body),
		MessageAttributes: e.attrs,
	}}
	if fifo {
		it.entry.MessageGroupId = aws.String(groupID(m))
		it.entry.MessageDeduplicationId = aws.String(m.ID.String())
	}
	return it, nil
}

// waves yields the first message of each group, then the second, and so on.
func waves(items []item) func(yield func([]item) bool) {
	return func(yield func([]item) bool) {
		for rest := items; len(rest) > 0; {
			seen := map[string]bool{}
			var wave, later []item
			for _, it := range rest {
				if group := it.group(); !seen[group] {
					seen[group] = true
					wave = append(wave, it)
				} else {
					later = append(later, it)
				}
			}
			if !yield(wave) {
				return
			}
			rest = later
		}
	}
}

// behindFailures answers the messages that have one of their group before them
// which is still to be sent, and returns the others. A permanent failure is
// nothing to wait for.
func (c *publishing) behindFailures(wave, all []item) []item {
	unsent := map[string]error{}
	for _, it := range all {
		err := c.results[it.index].Err
		if err != nil && outbox.ClassOf(err) != outbox.ClassPermanent && unsent[it.group()] == nil {
			unsent[it.group()] = err
		}
	}
	var free []item
	for _, it := range wave {
		if err := unsent[it.group()]; err != nil {
			c.results[it.index].Err = fmt.Errorf("sqsbroker: not sent, because an earlier message of its key was not: %w", err)
			continue
		}
		free = append(free, it)
	}
	return free
}

// sendAll cuts the items into requests and sends them, several at a time.
func (c *publishing) sendAll(ctx context.Context, to target, items []item) {
	var wg sync.WaitGroup
	for len(items) > 0 {
		n, bytes := 0, 0
		for n < len(items) && n < MaxBatch && bytes+items[n].size <= c.cfg.MaxBytes {
			bytes += items[n].size
			n++
		}
		batch := items[:n]
		items = items[n:]
		wg.Go(func() {
			if !c.acquire(ctx) {
				c.failAll(batch, ended(ctx, fmt.Errorf("sqsbroker: nothing sent to queue %q: %w", to.queue, ctx.Err())))
				return
			}
			defer c.release()
			c.send(ctx, to, batch)
		})
	}
	wg.Wait()
}

// send makes one request, and one for each message where SQS refused all of
// them for what may be in one.
func (c *publishing) send(ctx context.Context, to target, batch []item) {
	in := &sqs.SendMessageBatchInput{QueueUrl: aws.String(to.url), Entries: make([]types.SendMessageBatchRequestEntry, len(batch))}
	for i := range batch {
		in.Entries[i] = batch[i].entry
		in.Entries[i].Id = aws.String(strconv.Itoa(i))
	}
	out, err := c.cfg.Client.SendMessageBatch(ctx, in, callOptions)
	switch {
	case err == nil:
		c.settle(to, batch, out)
	case len(batch) > 1 && aboutContents(err):
		for i := range batch {
			c.send(ctx, to, batch[i:i+1])
		}
	default:
		err = classify(ctx, fmt.Errorf("sqsbroker: send to queue %q: %w", to.queue, err))
		c.failAll(batch, c.dest.missing(err))
	}
}

func (c *publishing) settle(to target, batch []item, out *sqs.SendMessageBatchOutput) {
	answered := make([]bool, len(batch))
	position := func(id *string) int {
		i, err := strconv.Atoi(aws.ToString(id))
		if err != nil || i < 0 || i >= len(batch) {
			return -1
		}
		return i
	}
	for _, ok := range out.Successful {
		i := position(ok.Id)
		if i < 0 {
			continue
		}
		answered[i] = true
		result := &c.results[batch[i].index]
		result.BrokerID = aws.ToString(ok.MessageId)
		if !sameBody(batch[i].entry.MessageBody, ok.MD5OfMessageBody) {
			result.Err = outbox.Retryable(fmt.Errorf("sqsbroker: queue %q acknowledged a body other than the one sent (MD5 %s)", to.queue, *ok.MD5OfMessageBody))
		}
	}
	for _, failed := range out.Failed {
		i := position(failed.Id)
		if i < 0 {
			continue
		}
		answered[i] = true
		var err error = newEntryError(failed)
		err = classifyEntry(fmt.Errorf("sqsbroker: queue %q refused the message: %w", to.queue, err), len(out.Successful) > 0)
		c.results[batch[i].index] = outbox.Result{Err: c.dest.missing(err)}
	}
	for i := range batch {
		if !answered[i] {
			c.results[batch[i].index].Err = outbox.Retryable(fmt.Errorf("sqsbroker: queue %q answered the request without a word on this message", to.queue))
		}
	}
}

func sameBody(body, sum *string) bool {
	if sum == nil {
		return true
	}
	own := md5.Sum([]byte(*body)) // the checksum that SQS gives
	return hex.EncodeToString(own[:]) == *sum
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
