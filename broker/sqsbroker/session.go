package sqsbroker

import (
	"context"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/internal/awsmsg"
	"github.com/postrider/postrider/outbox"
)

// session is one call of Consume. A message goes through it so:
//
//	poll → (slot) → handle → deletes → deleter
//	                  └ error → visibility set to the retry delay
//
// It is hidden by heartbeats (hold.go) from poll until it was deleted or given
// back. A slot is taken before the poll asks for the message and freed when the
// message has been handled and the deleter's queue has room for it, so a queue
// that deletes nothing any more stops the session from taking more.
type session struct {
	*Consumer
	url    string
	handle inbox.Handler
	// work is the context of everything that a stop does not cancel.
	work    context.Context
	slots   chan struct{}
	deletes chan *hold
	held    holds
	running sync.WaitGroup // handlers
}

// hold is a message that was received and neither deleted nor given back yet.
type hold struct {
	message types.Message
	since   time.Time // received or extended
	handled bool      // and to be deleted
}

func newSession(ctx context.Context, c *Consumer, url string, handle inbox.Handler) *session {
	return &session{
		Consumer: c,
		url:      url,
		handle:   handle,
		work:     context.WithoutCancel(ctx),
		slots:    make(chan struct{}, c.cfg.Handlers),
		deletes:  make(chan *hold, MaxBatch*c.cfg.Pollers),
		held:     holds{all: map[*hold]struct{}{}},
	}
}

func (s *session) run(ctx context.Context) error {
	beating, stopBeating := context.WithCancel(s.work)
	var heart sync.WaitGroup
	heart.Go(func() { s.heartbeat(beating) })

	retrying, giveUp := context.WithCancel(s.work)
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(s.cfg.StopTimeout, giveUp) })()
	var deleters sync.WaitGroup
	for range s.cfg.Pollers {
		deleters.Go(func() { s.deleter(retrying) })
	}
	var pollers sync.WaitGroup
	for range s.cfg.Pollers {
		pollers.Go(func() { s.poll(ctx) })
	}

	pollers.Wait()
	s.running.Wait()
	close(s.deletes)
	deleters.Wait()
	stopBeating()
	heart.Wait()
	if left := s.held.count(); left > 0 {
		return fmt.Errorf("sqsbroker: stopped with %d handled messages that queue %q did not delete: they will come again", left, s.queue.name)
	}
	return nil
}

// poll asks for as many messages as there are free slots, at most a batch.
func (s *session) poll(ctx context.Context) {
	wait := newBackoff()
	for {
		n := s.takeSlots(ctx)
		if n == 0 {
			return
		}
		messages, err := s.receive(ctx, s.url, n)
		if err != nil {
			s.freeSlots(n)
			if ctx.Err() != nil {
				return
			}
			s.logError(ctx, "cannot receive; trying again", err)
			if !wait.sleep(ctx) {
				return
			}
			continue
		}
		wait.reset()
		s.freeSlots(n - len(messages))
		received := s.held.add(messages)
		if ctx.Err() != nil {
			s.giveBack(received, 0)
			return
		}
		s.dispatch(ctx, received)
	}
}

func (s *session) takeSlots(ctx context.Context) int {
	select {
	case <-ctx.Done():
		return 0
	case s.slots <- struct{}{}:
	}
	if ctx.Err() != nil { // both were ready
		s.freeSlots(1)
		return 0
	}
	n := 1
	for ; n < MaxBatch; n++ {
		select {
		case s.slots <- struct{}{}:
		default:
			return n
		}
	}
	return n
}

func (s *session) freeSlots(n int) {
	for range n {
		<-s.slots
	}
}

// dispatch starts the handlers: one for each message, or on a FIFO queue one
// for each group.
func (s *session) dispatch(ctx context.Context, received []*hold) {
	for _, group := range s.groups(received) {
		s.running.Go(func() {
			for i, h := range group {
				if i > 0 && ctx.Err() != nil {
					s.giveBack(group[i:], 0)
					return
				}
				delay, ok := s.one(h)
				if !ok {
					s.giveBack(group[i:], delay)
					return
				}
				s.held.finish(h)
				s.deletes <- h
				s.freeSlots(1)
			}
		})
	}
}

func (s *session) groups(received []*hold) [][]*hold {
	var groups [][]*hold
	at := map[string]int{}
	for _, h := range received {
		if s.queue.fifo() {
			name := h.group()
			if i, ok := at[name]; ok {
				groups[i] = append(groups[i], h)
				continue
			}
			at[name] = len(groups)
		}
		groups = append(groups, []*hold{h})
	}
	return groups
}

func (h *hold) group() string {
	if id, ok := h.message.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]; ok {
		return id
	}
	// Some emulators do not tell; the key is as good where there is one.
	if key, ok := h.message.MessageAttributes[awsmsg.AttrKey]; ok {
		return attribute(key).Value
	}
	return aws.ToString(h.message.MessageId)
}

// one handles one message. If that fails it is to come again after the delay.
func (s *session) one(h *hold) (delay time.Duration, ok bool) {
	count, _ := strconv.Atoi(h.message.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
	m, err := s.decode(&h.message)
	if err != nil {
		s.cfg.Logger.ErrorContext(s.work, "message cannot be decoded; left to the dead-letter queue",
			"queue", s.queue.name, "sqs_id", aws.ToString(h.message.MessageId), "receives", count, "error", err)
		return s.retryDelay(count, true), false
	}
	if err := s.call(m); err != nil {
		permanent := outbox.ClassOf(err) == outbox.ClassPermanent
		s.cfg.Logger.ErrorContext(s.work, "handler failed; the message comes again",
			"queue", s.queue.name, "message_id", m.ID, "type", m.Type, "receives", count, "permanent", permanent, "error", err)
		return s.retryDelay(count, permanent), false
	}
	return 0, true
}

// call runs the handler. A panic is an error of this message, not the end of
// the process.
func (s *session) call(m outbox.Message) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("sqsbroker: handler panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return s.handle(s.work, m)
}

// giveBack makes the messages visible again after the delay and frees their
// slots. If SQS cannot be told, the visibility timeout does it.
func (s *session) giveBack(given []*hold, delay time.Duration) {
	s.held.remove(given...)
	defer s.freeSlots(len(given))
	if delay < 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.work, requestTimeout)
	defer cancel()
	for batch := range batches(given) {
		if err := s.setVisibility(ctx, batch, delay, nil); err != nil {
			s.logError(ctx, "cannot give messages back; they come again later", err, "messages", len(batch))
			return
		}
	}
}

// setVisibility makes one request. each, if set, is told of the refused entries.
func (s *session) setVisibility(ctx context.Context, batch []*hold, d time.Duration, each func(h *hold, err error)) error {
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: aws.String(s.url)}
	for i, h := range batch {
		in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), ReceiptHandle: h.message.ReceiptHandle, VisibilityTimeout: seconds(d),
		})
	}
	out, err := s.cfg.Client.ChangeMessageVisibilityBatch(ctx, in, callOptions)
	if err != nil {
		return awsmsg.Classify(ctx, fmt.Errorf("sqsbroker: change the visibility of messages of queue %q: %w", s.queue.name, err))
	}
	if each == nil {
		return nil
	}
	for _, failed := range out.Failed {
		if i, err := strconv.Atoi(aws.ToString(failed.Id)); err == nil && i >= 0 && i < len(batch) {
			each(batch[i], entryError(failed))
		}
	}
	return nil
}
