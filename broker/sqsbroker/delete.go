package sqsbroker

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/postrider/postrider/internal/awsmsg"
)

// deleter deletes handled messages in batches, until the channel is closed and
// empty. What fails is tried again until retrying ends.
func (s *session) deleter(retrying context.Context) {
	for {
		first, ok := <-s.deletes
		if !ok {
			return
		}
		s.deleteAll(retrying, s.collect(first))
	}
}

// collect waits DeleteDelay for a batch to fill.
func (s *session) collect(first *hold) []*hold {
	batch := []*hold{first}
	timer := time.NewTimer(s.cfg.DeleteDelay)
	defer timer.Stop()
	for len(batch) < MaxBatch {
		select {
		case h, ok := <-s.deletes:
			if !ok {
				return batch
			}
			batch = append(batch, h)
		case <-timer.C:
			return batch
		}
	}
	return batch
}

// deleteAll tries until each message is deleted or refused for good; once
// retrying has ended only one time. What is left then stays held.
func (s *session) deleteAll(retrying context.Context, batch []*hold) {
	for wait := newBackoff(); len(batch) > 0; {
		left, err := s.deleteOnce(batch)
		if err != nil {
			s.logError(s.work, "cannot delete handled messages", err, "messages", len(left))
			if !wait.sleep(retrying) {
				return
			}
		}
		batch = left
	}
}

// deleteOnce returns what is to be tried again, and why.
func (s *session) deleteOnce(batch []*hold) (left []*hold, err error) {
	ctx, cancel := context.WithTimeout(s.work, requestTimeout)
	defer cancel()
	in := &sqs.DeleteMessageBatchInput{QueueUrl: aws.String(s.url)}
	for i, h := range batch {
		in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: h.message.ReceiptHandle})
	}
	out, err := s.cfg.Client.DeleteMessageBatch(ctx, in, callOptions)
	if err != nil {
		return batch, awsmsg.Classify(ctx, fmt.Errorf("sqsbroker: delete from queue %q: %w", s.queue.name, err))
	}
	done := make([]bool, len(batch))
	finish := func(id *string) *hold {
		i, err := strconv.Atoi(aws.ToString(id))
		if err != nil || i < 0 || i >= len(batch) {
			return nil
		}
		done[i] = true
		s.held.remove(batch[i])
		return batch[i]
	}
	for _, ok := range out.Successful {
		finish(ok.Id)
	}
	err = fmt.Errorf("sqsbroker: queue %q answered a deletion without a word on some messages", s.queue.name)
	for _, failed := range out.Failed {
		refusal := entryError(failed)
		if !receiptRefused(refusal.Code) {
			err = awsmsg.ClassifyEntry(fmt.Errorf("sqsbroker: queue %q refused to delete a message: %w", s.queue.name, refusal), len(out.Successful) > 0)
			continue
		}
		if h := finish(failed.Id); h != nil {
			s.cfg.Logger.WarnContext(ctx, "a handled message cannot be deleted any more; it may come again",
				"queue", s.queue.name, "sqs_id", aws.ToString(h.message.MessageId), "error", refusal)
		}
	}
	for i, h := range batch {
		if !done[i] {
			left = append(left, h)
		}
	}
	if len(left) == 0 {
		err = nil
	}
	return left, err
}

// receiptRefused: the handle has expired or a later delivery has replaced it.
func receiptRefused(code string) bool {
	switch awsmsg.BareCode(code) {
	case "ReceiptHandleIsInvalid", "InvalidIdFormat", "InvalidParameterValue":
		return true
	}
	return false
}
