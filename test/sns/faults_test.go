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
	"github.com/postrider/postrider/test/internal/awsrig"
)

func TestFaults(t *testing.T) {
	awsrig.Faults(t, awsrig.Publishing{Operation: "AmazonSNS.PublishBatch", New: func(shared *awsrig.Rig, fifo bool) (outbox.Publisher, string) {
		r, suffix := with(shared), ""
		if fifo {
			suffix = ".fifo"
		}
		topic, queue := r.pair(suffix)
		return r.publisher(snsbroker.PublisherConfig{Topic: topic}), queue
	}})
}

// STS is asked for the account once.
func TestAccountIsAskedForOnce(t *testing.T) {
	r := newRig(t)
	topic, _ := r.pair("")
	p := r.publisher(snsbroker.PublisherConfig{Topic: topic})
	for range 3 {
		r.All(p, awsrig.Orders(t, 12))
	}
	if n := r.Proxy.Requests("GetCallerIdentity"); n != 1 {
		t.Errorf("STS was asked %d times, want once", n)
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
			msgs := awsrig.Orders(t, 50)
			for i := range msgs {
				msgs[i].Payload = append(msgs[i].Payload, bytes.Repeat([]byte(" "), c.lots)...)
			}
			msgs[11].Payload = bytes.Repeat([]byte("x"), c.bytes)
			results := p.Publish(t.Context(), msgs)
			failed := awsrig.Pick(t, msgs, results, outbox.ClassPermanent)
			if c.says == "" {
				if len(failed) != 0 {
					t.Fatalf("%d messages failed: %v", len(failed), results[11].Err)
				}
				r.Once(queue, msgs...)
				return
			}
			if len(failed) != 1 || failed[0].ID != msgs[11].ID || !strings.Contains(results[11].Err.Error(), c.says) {
				t.Fatalf("%d messages failed, want number 11: %v", len(failed), results[11].Err)
			}
			r.Once(queue, append(msgs[:11:11], msgs[12:]...)...)
		})
	}
}

// Two of a hundred go to topics that do not exist, by name and by ARN.
func TestUnknownDestinationLosesOnlyItself(t *testing.T) {
	r := newRig(t)
	topic, arn := r.topic("", nil)
	queue := r.queue(arn, true)
	for _, template := range []string{"{topic}", strings.TrimSuffix(arn, topic) + "{topic}"} {
		p := r.publisher(snsbroker.PublisherConfig{Topic: template})
		msgs := awsrig.Orders(t, 100)
		for i := range msgs {
			msgs[i].Topic = topic
		}
		msgs[42].Topic = "gone-" + topic
		msgs[77].Topic = "no name of a topic"
		failed := awsrig.Pick(t, msgs, p.Publish(t.Context(), msgs), outbox.ClassPermanent)
		if len(failed) != 2 || failed[0].ID != msgs[42].ID || failed[1].ID != msgs[77].ID {
			t.Fatalf("%s: %d messages failed, want numbers 42 and 77", template, len(failed))
		}
		r.Once(queue, append(append(msgs[:42:42], msgs[43:77]...), msgs[78:]...)...)
	}
}

// A fixed topic that is missing is nobody's message's fault: an operator
// creates it, and everything goes on.
func TestMissingFixedTopicIsWaitedFor(t *testing.T) {
	r := newRig(t)
	topic := awsrig.Name("-late")
	p := r.publisher(snsbroker.PublisherConfig{Topic: topic})
	msgs := awsrig.Orders(t, 3)
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
		r.All(p, msgs)
		r.Once(queue, msgs...)
		if _, err := r.topics.DeleteTopic(t.Context(), &sns.DeleteTopicInput{TopicArn: created.TopicArn}); err != nil {
			t.Fatal(err)
		}
		refused("deleted")
	}
}

// While nothing answers Publish returns when its context ends.
func TestEndOfTheContext(t *testing.T) {
	for name, rule := range map[string]awsproxy.Rule{
		"SNS": {Target: "PublishBatch", Fault: awsproxy.Hang()}, "STS": {Target: "GetCallerIdentity", Fault: awsproxy.Hang()},
	} {
		r := newRig(t)
		topic, _ := r.pair("")
		p := r.publisher(snsbroker.PublisherConfig{Topic: topic})
		r.Proxy.Add(rule)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		for i, result := range p.Publish(ctx, awsrig.Orders(t, 12)) {
			if !outbox.IsTimeout(result.Err) {
				t.Errorf("%s: message %d: %v, want a time-out", name, i, result.Err)
			}
		}
		cancel()
	}
}
