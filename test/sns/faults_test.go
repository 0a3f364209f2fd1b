package sns_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/postrider/postrider/broker/snsbroker"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/outbox"
)

// Three of ten entries fail: they alone count as unsent, and sending them again
// repeats none of the other seven.
func TestFailedEntriesAloneAreSentAgain(t *testing.T) {
	r := newRig(t)
	topic, queue := r.pair("")
	p := r.publisher(snsbroker.PublisherConfig{Topic: topic})
	r.proxy.Add(awsproxy.Rule{Target: "PublishBatch", Count: 1, Fault: awsproxy.FailEntries(awsproxy.At(1, 4, 9), "InternalError", false)})
	msgs := orders(t, 10)
	failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassRetryable)
	if len(failed) != 3 || failed[0].ID != msgs[1].ID || failed[1].ID != msgs[4].ID || failed[2].ID != msgs[9].ID {
		t.Fatalf("%d messages failed, want numbers 1, 4 and 9", len(failed))
	}
	r.all(p, failed)
	r.once(queue, msgs...)
	if n := r.proxy.Requests("AmazonSNS.PublishBatch"); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// Chance decides which entries fail, until all are sent.
func TestFailedEntriesAtRandom(t *testing.T) {
	r := newRig(t)
	topic, queue := r.pair("")
	p := r.publisher(snsbroker.PublisherConfig{Topic: topic})
	for i := range 10 {
		r.proxy.Add(awsproxy.Rule{Target: "PublishBatch", Probability: 0.15, Fault: awsproxy.FailEntries(awsproxy.At(i), "InternalError", false)})
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

// An entry about which SNS says nothing is not known to be sent.
func TestEntryWithoutAnswerIsUnsent(t *testing.T) {
	r := newRig(t)
	topic, _ := r.pair("")
	p := r.publisher(snsbroker.PublisherConfig{Topic: topic})
	r.proxy.Add(awsproxy.Rule{Target: "PublishBatch", Fault: awsproxy.OmitEntries(awsproxy.At(7))})
	msgs := orders(t, 10)
	failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassRetryable)
	if len(failed) != 1 || failed[0].ID != msgs[7].ID {
		t.Fatalf("%d messages count as unsent, want number 7", len(failed))
	}
}

// A message that the topic does not take fails alone: one that is too large for
// SNS is not even sent, one that is too large for this topic is refused by it.
func TestOversizedMessageFailsAlone(t *testing.T) {
	for _, c := range []struct {
		name        string
		bytes, lots int // of the large message, and of each other
		attributes  map[string]string
		says        string // empty: it is taken
	}{
		{"larger than SNS takes", snsbroker.MaxMessageBytes, 20, nil, "at most 1048576"},
		{"larger than a topic takes unasked", snsbroker.DefaultMaxBytes, 20, nil, "BatchRequestTooLong"},
		{"as large as the topic may", 700 << 10, 20, map[string]string{"MaximumMessageSize": "1048576"}, ""},
		{"all of them together", 1000, 60 << 10, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			topic, arn := r.topic("", c.attributes)
			queue := r.queue(arn, true)
			p := r.publisher(snsbroker.PublisherConfig{Topic: topic})
			msgs := orders(t, 50)
			for i := range msgs {
				msgs[i].Payload = append(msgs[i].Payload, bytes.Repeat([]byte(" "), c.lots)...)
			}
			msgs[11].Payload = bytes.Repeat([]byte("x"), c.bytes)
			results := p.Publish(t.Context(), msgs)
			failed := pick(t, msgs, results, outbox.ClassPermanent)
			if c.says == "" {
				if len(failed) != 0 {
					t.Fatalf("%d messages failed: %v", len(failed), results[11].Err)
				}
				r.once(queue, msgs...)
				return
			}
			if len(failed) != 1 || failed[0].ID != msgs[11].ID || !strings.Contains(results[11].Err.Error(), c.says) {
				t.Fatalf("%d messages failed, want number 11: %v", len(failed), results[11].Err)
			}
			r.once(queue, append(msgs[:11:11], msgs[12:]...)...)
		})
	}
}

// A topic with a lower limit refuses the whole request for one message.
func TestMessageTooLargeForTheTopicFailsAlone(t *testing.T) {
	r := newRig(t)
	topic, queue := r.pair("")
	p := r.publisher(snsbroker.PublisherConfig{Topic: topic})
	r.proxy.Add(awsproxy.Rule{Target: "PublishBatch", Containing: "too large", Fault: awsproxy.ServiceError(400,
		"BatchRequestTooLong", "", "The length of all the messages put together is more than the limit.")})
	msgs := orders(t, 50)
	msgs[23].Payload = []byte(`"too large"`)
	failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassPermanent)
	if len(failed) != 1 || failed[0].ID != msgs[23].ID {
		t.Fatalf("%d messages failed, want number 23", len(failed))
	}
	r.once(queue, append(msgs[:23:23], msgs[24:]...)...)
}

// Two of a hundred go to topics that do not exist, by name and by ARN.
func TestUnknownDestinationLosesOnlyItself(t *testing.T) {
	r := newRig(t)
	topic, arn := r.topic("", nil)
	queue := r.queue(arn, true)
	for _, template := range []string{"{topic}", strings.TrimSuffix(arn, topic) + "{topic}"} {
		p := r.publisher(snsbroker.PublisherConfig{Topic: template})
		msgs := orders(t, 100)
		for i := range msgs {
			msgs[i].Topic = topic
		}
		msgs[42].Topic = "gone-" + topic
		msgs[77].Topic = "no name of a topic"
		failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassPermanent)
		if len(failed) != 2 || failed[0].ID != msgs[42].ID || failed[1].ID != msgs[77].ID {
			t.Fatalf("%s: %d messages failed, want numbers 42 and 77", template, len(failed))
		}
		r.once(queue, append(append(msgs[:42:42], msgs[43:77]...), msgs[78:]...)...)
	}
}

// A fixed topic that is missing is nobody's message's fault: an operator
// creates it, and everything goes on.
func TestMissingFixedTopicIsWaitedFor(t *testing.T) {
	r := newRig(t)
	topic := name("-late")
	p := r.publisher(snsbroker.PublisherConfig{Topic: topic})
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
	for range 2 {
		created, err := r.topics.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: aws.String(topic)})
		if err != nil {
			t.Fatal(err)
		}
		queue := r.queue(*created.TopicArn, true)
		r.all(p, msgs)
		r.once(queue, msgs...)
		if _, err := r.topics.DeleteTopic(t.Context(), &sns.DeleteTopicInput{TopicArn: created.TopicArn}); err != nil {
			t.Fatal(err)
		}
		refused("deleted")
	}
}

// What befalls everybody is unavailable, and over when it is over; also while
// the account is still to be asked for.
func TestWhileTheServiceIsAway(t *testing.T) {
	for _, asked := range []bool{false, true} {
		r := newRig(t)
		topic, queue := r.pair("")
		p := r.publisher(snsbroker.PublisherConfig{Topic: topic})
		if asked {
			r.all(p, orders(t, 1))
			r.waiting(queue)
		}
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
		r.all(p, msgs)
		r.once(queue, msgs...)
		if n := r.proxy.Requests("GetCallerIdentity"); asked && n != 1 {
			t.Errorf("STS was asked %d times, want once", n)
		}
	}
}

// The answer is lost: the messages are not known to be sent. FIFO removes the
// second copies by their ids.
func TestLostAnswerOnFIFO(t *testing.T) {
	r := newRig(t)
	topic, queue := r.pair(".fifo")
	p := r.publisher(snsbroker.PublisherConfig{Topic: topic})
	r.proxy.Add(awsproxy.Rule{Target: "PublishBatch", Count: 1, Fault: awsproxy.LoseAnswer()})
	msgs := orders(t, 10)
	if failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassUnavailable); len(failed) != 10 {
		t.Fatalf("%d messages count as unsent, want all", len(failed))
	}
	if n, err := r.left(t.Context(), queue); err != nil || n != 10 {
		t.Fatalf("%d messages are in the queue (%v); the answer alone should have been lost", n, err)
	}
	r.all(p, msgs)
	r.once(queue, msgs...)
}

// On a FIFO topic the second message of a key is not sent while the first is to
// be tried again.
func TestFIFOKeepsFollowersBehindAFailure(t *testing.T) {
	r := newRig(t)
	topic, queue := r.pair(".fifo")
	p := r.publisher(snsbroker.PublisherConfig{Topic: topic})
	msgs := orders(t, 6)
	for i := range msgs {
		msgs[i].Key = []string{"a", "b"}[i%2]
	}
	r.proxy.Add(awsproxy.Rule{Target: "PublishBatch", Count: 1, Fault: awsproxy.FailEntries(awsproxy.Containing(msgs[0].ID.String()), "InternalError", false)})
	failed := pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassRetryable)
	if len(failed) != 3 || failed[0].Key != "a" || failed[1].Key != "a" || failed[2].Key != "a" {
		t.Fatalf("%d messages count as unsent, want all three of key a", len(failed))
	}
	r.once(queue, msgs[1], msgs[3], msgs[5])
}

// While nothing answers Publish returns when its context ends.
func TestEndOfTheContext(t *testing.T) {
	for name, rule := range map[string]awsproxy.Rule{
		"SNS": {Target: "PublishBatch", Fault: awsproxy.Hang()}, "STS": {Target: "GetCallerIdentity", Fault: awsproxy.Hang()},
	} {
		r := newRig(t)
		topic, _ := r.pair("")
		p := r.publisher(snsbroker.PublisherConfig{Topic: topic})
		r.proxy.Add(rule)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		for i, result := range p.Publish(ctx, orders(t, 12)) {
			if !outbox.IsTimeout(result.Err) {
				t.Errorf("%s: message %d: %v, want a time-out", name, i, result.Err)
			}
		}
		cancel()
	}
}
