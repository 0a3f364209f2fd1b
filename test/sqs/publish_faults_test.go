package sqs_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/outbox"
)

// pick returns the messages whose result has an error, checking its class.
func pick(t *testing.T, msgs []outbox.Message, results []outbox.Result, want outbox.Class) []outbox.Message {
	t.Helper()
	var failed []outbox.Message
	for i, result := range results {
		if result.Err == nil {
			continue
		}
		if got := outbox.ClassOf(result.Err); got != want {
			t.Errorf("message %d is %v, want %v: %v", i, got, want, result.Err)
		}
		failed = append(failed, msgs[i])
	}
	return failed
}

// Three of ten entries fail: they alone count as unsent, and sending them again
// repeats none of the other seven.
func TestFailedEntriesAloneAreSentAgain(t *testing.T) {
	r := newRig(t)
	queue := r.queue("", nil)
	p := r.publisher(sqsbroker.PublisherConfig{Queue: queue})
	r.proxy.Add(awsproxy.Rule{Target: "SendMessageBatch", Count: 1, Fault: awsproxy.FailEntries(awsproxy.At(1, 4, 9), "InternalError", false)})
	msgs := orders(t, 10)
	failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassRetryable)
	if len(failed) != 3 || failed[0].ID != msgs[1].ID || failed[1].ID != msgs[4].ID || failed[2].ID != msgs[9].ID {
		t.Fatalf("%d messages failed, want numbers 1, 4 and 9", len(failed))
	}
	if left := pick(t, failed, p.Publish(t.Context(), failed), outbox.ClassRetryable); len(left) != 0 {
		t.Fatalf("%d failed again", len(left))
	}
	r.once(queue, msgs...)
}

// Chance decides which entries fail, until all are sent.
func TestFailedEntriesAtRandom(t *testing.T) {
	r := newRig(t)
	queue := r.queue("", nil)
	p := r.publisher(sqsbroker.PublisherConfig{Queue: queue})
	for i := range 10 {
		r.proxy.Add(awsproxy.Rule{Target: "SendMessageBatch", Probability: 0.15, Fault: awsproxy.FailEntries(awsproxy.At(i), "InternalError", false)})
	}
	msgs := orders(t, 137)
	rounds := 0
	for unsent := msgs; len(unsent) > 0; rounds++ {
		var left []outbox.Message
		for i, result := range p.Publish(t.Context(), unsent) {
			if result.Err != nil {
				left = append(left, unsent[i])
			}
		}
		unsent = left
	}
	if rounds < 2 {
		t.Error("nothing ever failed")
	}
	r.once(queue, msgs...)
}

// An entry about which SQS says nothing is not known to be sent.
func TestEntryWithoutAnswerIsUnsent(t *testing.T) {
	r := newRig(t)
	queue := r.queue("", nil)
	p := r.publisher(sqsbroker.PublisherConfig{Queue: queue})
	r.proxy.Add(awsproxy.Rule{Target: "SendMessageBatch", Fault: awsproxy.OmitEntries(awsproxy.At(7))})
	msgs := orders(t, 10)
	failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassRetryable)
	if len(failed) != 1 || failed[0].ID != msgs[7].ID {
		t.Fatalf("%d messages count as unsent, want number 7", len(failed))
	}
}

// SQS refuses the whole request for one message that is too large for a limit
// that only this queue has.
func TestMessageTooLargeForTheQueueFailsAlone(t *testing.T) {
	r := newRig(t)
	queue := r.queue("", nil)
	p := r.publisher(sqsbroker.PublisherConfig{Queue: queue})
	r.proxy.Add(awsproxy.Rule{Target: "SendMessageBatch", Containing: "too large", Fault: awsproxy.ServiceError(400,
		"com.amazonaws.sqs#BatchRequestTooLong", "AWS.SimpleQueueService.BatchRequestTooLong;Sender", "Batch requests cannot be longer than 1024 bytes.")})
	msgs := orders(t, 50)
	msgs[23].Payload = []byte(`"too large"`)
	failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassPermanent)
	if len(failed) != 1 || failed[0].ID != msgs[23].ID {
		t.Fatalf("%d messages failed, want number 23", len(failed))
	}
	r.once(queue, append(msgs[:23:23], msgs[24:]...)...)
}

func TestOversizedMessageFailsAlone(t *testing.T) {
	r := newRig(t)
	queue := r.queue("", nil)
	p := r.publisher(sqsbroker.PublisherConfig{Queue: queue})
	msgs := orders(t, 50)
	msgs[11].Payload = bytes.Repeat([]byte("x"), sqsbroker.MaxMessageBytes)
	results := p.Publish(t.Context(), msgs)
	failed := pick(t, msgs, results, outbox.ClassPermanent)
	if len(failed) != 1 || failed[0].ID != msgs[11].ID || !strings.Contains(results[11].Err.Error(), "at most 1048576") {
		t.Fatalf("%d messages failed, want number 11: %v", len(failed), results[11].Err)
	}
	r.once(queue, append(msgs[:11:11], msgs[12:]...)...)
}

// One of a hundred goes to a queue that does not exist, by name and by URL.
func TestUnknownDestinationLosesOnlyItself(t *testing.T) {
	r := newRig(t)
	queue := r.queue("", nil)
	url := *r.url(queue)
	missing := "gone-" + queue
	r.proxy.Add(awsproxy.Rule{Target: "SendMessageBatch", Containing: missing, Fault: awsproxy.MissingQueue()})
	for _, template := range []string{"{topic}", strings.TrimSuffix(url, queue) + "{topic}"} {
		p := r.publisher(sqsbroker.PublisherConfig{Queue: template})
		msgs := orders(t, 100)
		for i := range msgs {
			msgs[i].Topic = queue
		}
		msgs[42].Topic = missing
		msgs[77].Topic = "no name of a queue"
		failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassPermanent)
		if len(failed) != 2 || failed[0].ID != msgs[42].ID || failed[1].ID != msgs[77].ID {
			t.Fatalf("%s: %d messages failed, want numbers 42 and 77", template, len(failed))
		}
		r.once(queue, append(append(msgs[:42:42], msgs[43:77]...), msgs[78:]...)...)
	}
}

// A fixed queue that is missing is nobody's message's fault: an operator
// creates it, and everything goes on.
func TestMissingFixedQueueIsWaitedFor(t *testing.T) {
	r := newRig(t)
	name := strings.Replace(r.queue("", nil), "test-", "late-", 1)
	p := r.publisher(sqsbroker.PublisherConfig{Queue: name})
	msgs := orders(t, 3)
	refused := func(when string) {
		t.Helper()
		for i, result := range p.Publish(t.Context(), msgs) {
			if result.Err == nil || outbox.ClassOf(result.Err) != outbox.ClassUnavailable || !outbox.IsAlarm(result.Err) {
				t.Errorf("%s: message %d has %v, want unavailable with an alarm", when, i, result.Err)
			}
		}
	}
	refused("never created")
	in := &sqs.CreateQueueInput{QueueName: aws.String(name)}
	if _, err := r.direct.CreateQueue(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassUnavailable); len(failed) != 0 {
		t.Fatalf("%d messages failed although the queue exists", len(failed))
	}
	r.once(name, msgs...)
	if _, err := r.direct.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: r.url(name)}); err != nil {
		t.Fatal(err)
	}
	refused("deleted")
	if _, err := r.direct.CreateQueue(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassUnavailable); len(failed) != 0 {
		t.Fatalf("%d messages failed although the queue exists again", len(failed))
	}
	r.once(name, msgs...)
}

// What befalls everybody is unavailable, and over when it is over.
func TestWhileTheServiceIsAway(t *testing.T) {
	r := newRig(t)
	queue := r.queue("", nil)
	p := r.publisher(sqsbroker.PublisherConfig{Queue: queue})
	if err := p.Publish(t.Context(), orders(t, 1))[0].Err; err != nil {
		t.Fatal(err)
	}
	r.bodies(queue)
	msgs := orders(t, 12)
	for name, c := range map[string]struct {
		fault awsproxy.Fault
		alarm bool
	}{
		"throttled":           {awsproxy.Throttle(), false},
		"503":                 {awsproxy.Unavailable(), false},
		"502 of a balancer":   {awsproxy.Status(502), false},
		"reset":               {awsproxy.ResetConnection(), false},
		"expired credentials": {awsproxy.ExpiredCredentials(), true},
		"access denied":       {awsproxy.AccessDenied(), true},
	} {
		end := r.proxy.Add(awsproxy.Rule{Fault: c.fault})
		for i, result := range p.Publish(t.Context(), msgs) {
			if result.Err == nil || outbox.ClassOf(result.Err) != outbox.ClassUnavailable || outbox.IsAlarm(result.Err) != c.alarm {
				t.Errorf("%s: message %d has %v, want unavailable, alarm %v", name, i, result.Err, c.alarm)
			}
		}
		end()
	}
	r.proxy.Refuse()
	if failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassUnavailable); len(failed) != len(msgs) {
		t.Errorf("refused connections: %d messages failed", len(failed))
	}
	if err := r.proxy.Listen(); err != nil {
		t.Fatal(err)
	}
	if failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassUnavailable); len(failed) != 0 {
		t.Errorf("%d messages failed after all was well again", len(failed))
	}
	r.once(queue, msgs...)
}

// The answer is lost: the messages are not known to be sent. A FIFO queue
// removes the second copies by their ids.
func TestLostAnswer(t *testing.T) {
	r := newRig(t)
	queue := r.queue(".fifo", nil)
	p := r.publisher(sqsbroker.PublisherConfig{Queue: queue})
	r.proxy.Add(awsproxy.Rule{Target: "SendMessageBatch", Count: 1, Fault: awsproxy.LoseAnswer()})
	msgs := orders(t, 10)
	if failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassUnavailable); len(failed) != 10 {
		t.Fatalf("%d messages count as unsent, want all", len(failed))
	}
	if n := r.mustLeft(queue); n != 10 {
		t.Fatalf("%d messages are in the queue; the answer alone should have been lost", n)
	}
	if failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassUnavailable); len(failed) != 0 {
		t.Fatalf("%d messages failed", len(failed))
	}
	r.once(queue, msgs...)
}

// The client's own retries stay within the context.
func TestRetriesOfTheSDKEndWithTheContext(t *testing.T) {
	r := newRig(t)
	queue := r.queue("", nil)
	patient := sqs.NewFromConfig(awsemulator.Config(r.proxy.URL), func(o *sqs.Options) { o.RetryMaxAttempts = 1000 })
	p := r.publisher(sqsbroker.PublisherConfig{Client: patient, Queue: queue})
	r.proxy.Add(awsproxy.Rule{Fault: awsproxy.Unavailable()})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	started := time.Now()
	err := p.Publish(ctx, orders(t, 1))[0].Err
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("Publish took %v", took)
	}
	if !outbox.IsTimeout(err) {
		t.Errorf("want a time-out: %v", err)
	}
	if n := r.proxy.Requests(""); n < 2 {
		t.Errorf("%d requests: nothing was tried again", n)
	}
}

// On a FIFO queue the second message of a key is not sent while the first is
// to be tried again.
func TestFifoKeepsFollowersBehindAFailure(t *testing.T) {
	r := newRig(t)
	queue := r.queue(".fifo", nil)
	p := r.publisher(sqsbroker.PublisherConfig{Queue: queue})
	msgs := orders(t, 6)
	for i := range msgs {
		msgs[i].Key = []string{"a", "b"}[i%2]
	}
	r.proxy.Add(awsproxy.Rule{Target: "SendMessageBatch", Count: 1, Fault: awsproxy.FailEntries(awsproxy.Containing(msgs[0].ID.String()), "InternalError", false)})
	failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassRetryable)
	if len(failed) != 3 || failed[0].Key != "a" || failed[1].Key != "a" || failed[2].Key != "a" {
		t.Fatalf("%d messages count as unsent, want all three of key a", len(failed))
	}
	r.once(queue, msgs[1], msgs[3], msgs[5])
}

func TestCancelledWhileSomeAreSent(t *testing.T) {
	r := newRig(t)
	queue := r.queue("", nil)
	p := r.publisher(sqsbroker.PublisherConfig{Queue: queue, Concurrency: 1})
	r.proxy.Add(awsproxy.Rule{Target: "SendMessageBatch", Skip: 1, Fault: awsproxy.Hang()})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	msgs := orders(t, 35)
	var sent []outbox.Message
	for i, result := range p.Publish(ctx, msgs) {
		if result.Err == nil {
			sent = append(sent, msgs[i])
		} else if outbox.ClassOf(result.Err) != outbox.ClassUnavailable || !errors.Is(result.Err, context.Canceled) {
			t.Errorf("message %d: %v", i, result.Err)
		}
	}
	if len(sent) == 0 || len(sent) > 10 {
		t.Fatalf("%d messages count as sent, want those of one request", len(sent))
	}
	r.once(queue, sent...)
}
