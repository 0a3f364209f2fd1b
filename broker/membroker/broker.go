// Package membroker is a broker in memory: named queues, a Publisher and a
// Consumer with redelivery. It is a small, real implementation for examples
// and tests; nothing survives the process.
//
// It reads the clock through time.Now only, so testing/synctest can drive it.
package membroker

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
)

// Broker holds queues, which exist as soon as they are named. It is safe for
// concurrent use. Make it with New.
type Broker struct {
	mu            sync.Mutex
	queues        map[string]*queue
	subscriptions map[string][]string
	published     int
}

// New returns a broker without messages.
func New() *Broker {
	return &Broker{queues: make(map[string]*queue), subscriptions: make(map[string][]string)}
}

// queue keeps every message that it ever got, for Messages; waiting are those
// that no consumer has finished.
type queue struct {
	log     []outbox.Message
	waiting []*waiting    // in order of arrival
	changed chan struct{} // closed, and replaced, when there may be something to take
}

type waiting struct {
	message  outbox.Message
	visible  time.Time // not handed out before
	taken    bool
	receives int
}

func (b *Broker) queue(name string) *queue {
	q := b.queues[name]
	if q == nil {
		q = &queue{changed: make(chan struct{})}
		b.queues[name] = q
	}
	return q
}

func (q *queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// Subscribe makes name a topic: from now on what is published to it goes to
// the queue instead, and to every other queue that is subscribed.
func (b *Broker) Subscribe(name, queue string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.subscriptions[name], queue) {
		b.subscriptions[name] = append(b.subscriptions[name], queue)
	}
}

// Messages returns everything that the queue ever accepted, in order.
func (b *Broker) Messages(queue string) []outbox.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.queue(queue).log)
}

// Depth is how many messages of the queue no consumer has finished.
func (b *Broker) Depth(queue string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue(queue).waiting)
}

// accept stores a message and returns the id that it has here.
func (b *Broker) accept(name string, m outbox.Message) string {
	m.Payload = slices.Clone(m.Payload)
	m.Headers = maps.Clone(m.Headers)
	b.mu.Lock()
	defer b.mu.Unlock()
	targets := b.subscriptions[name]
	if len(targets) == 0 {
		targets = []string{name}
	}
	for _, target := range targets {
		q := b.queue(target)
		q.log = append(q.log, m)
		q.waiting = append(q.waiting, &waiting{message: m})
		q.wake()
	}
	b.published++
	return strconv.Itoa(b.published)
}

// Publisher is an outbox.Publisher. Change its fields before its first use.
type Publisher struct {
	// Broker gets the messages. Required.
	Broker *Broker
	// Queue, or topic with subscriptions. Empty: the message's own topic.
	Queue string
	// Before, if set, is called for each message before it is accepted. An
	// error refuses the message and is its result; to delay or to hang, wait
	// in here, for ctx too.
	Before func(ctx context.Context, m outbox.Message) error
	// After, if set, is called once the message is accepted. An error loses
	// the acknowledgement: it is the result, and the message is there.
	After func(ctx context.Context, m outbox.Message) error
}

// Publish implements outbox.Publisher. Messages are accepted in order, one
// after the other.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) []outbox.Result {
	results := make([]outbox.Result, len(msgs))
	for i, m := range msgs {
		results[i].BrokerID, results[i].Err = p.publish(ctx, m)
	}
	return results
}

// Destination implements outbox.Resolver.
func (p *Publisher) Destination(m *outbox.Message) string {
	if p.Queue != "" {
		return ""
	}
	return m.Topic
}

func (p *Publisher) publish(ctx context.Context, m outbox.Message) (id string, err error) {
	if err := ctx.Err(); err != nil {
		return "", outbox.TimedOut(err)
	}
	if p.Before != nil {
		if err := p.Before(ctx, m); err != nil {
			return "", err
		}
	}
	name := p.Queue
	if name == "" {
		name = m.Topic
	}
	id = p.Broker.accept(name, m)
	if p.After != nil {
		if err := p.After(ctx, m); err != nil {
			return "", err
		}
	}
	return id, nil
}
