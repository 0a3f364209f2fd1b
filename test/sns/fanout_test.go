package sns_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/postrider/postrider/broker/snsbroker"
	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/test/internal/awsrig"
)

// Each of four queues gets each message once; a fifth without raw delivery too.
func TestFanOut(t *testing.T) {
	r := newRig(t)
	topic, arn := r.topic("", nil)
	envelopes := map[string]bool{} // by queue
	for i := range 5 {
		raw := i < 4
		envelopes[r.queue(arn, raw)] = !raw
	}
	msgs := awsrig.Orders(t, 53)
	want := map[uuid.UUID]outbox.Message{}
	for i := range msgs {
		msgs[i].Headers = map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tenant": "é"}
		want[msgs[i].ID] = msgs[i]
	}
	r.All(r.publisher(snsbroker.PublisherConfig{Topic: topic}), msgs)

	for queue, envelope := range envelopes {
		var mu sync.Mutex
		got, times := map[uuid.UUID]outbox.Message{}, 0
		ctx, stop := context.WithTimeout(t.Context(), 60*time.Second)
		err := r.Consumer(sqsbroker.ConsumerConfig{Queue: queue, Envelope: envelope}).Consume(ctx, func(_ context.Context, m outbox.Message) error {
			mu.Lock()
			defer mu.Unlock()
			got[m.ID] = m
			if times++; len(got) == len(want) {
				stop()
			}
			return nil
		})
		stop()
		if err != nil {
			t.Error(err)
		}
		if times != len(want) {
			t.Errorf("queue %s: %d deliveries of %d messages", queue, times, len(want))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("queue %s (-want +got):\n%s", queue, diff)
		}
	}
}

// What a program without this library sees of a message in a queue.
func TestAttributesArrive(t *testing.T) {
	r := newRig(t)
	topic, queue := r.pair(".fifo")
	few, many := awsrig.Orders(t, 2)[0], awsrig.Orders(t, 2)[1]
	few.Headers = map[string]string{"traceparent": "00-x", "tenant": "t1"}
	many.Key = "key with spaces"
	many.Headers = map[string]string{"traceparent": "00-y", "a": "1", "b": "2", "c": "3", "d": "4", "e": "<5>"}
	r.All(r.publisher(snsbroker.PublisherConfig{Topic: topic}), []outbox.Message{few, many})

	base := func(m outbox.Message, trace string) map[string]string {
		return map[string]string{
			"EventType": "order.created", "postrider-id": m.ID.String(), "postrider-topic": "orders",
			"postrider-key": m.Key, "content-type": "application/json", "traceparent": trace,
		}
	}
	wantFew, wantMany := base(few, "00-x"), base(many, "00-y")
	wantFew["tenant"] = "t1"
	wantMany["postrider-headers"] = `{"a":"1","b":"2","c":"3","d":"4","e":"<5>","traceparent":"00-y"}`
	want := map[string]map[string]string{few.ID.String(): wantFew, many.ID.String(): wantMany}

	got := r.Waiting(queue)
	if len(got) != 2 {
		t.Fatalf("%d messages", len(got))
	}
	for _, m := range got {
		seen := map[string]string{}
		for name, v := range m.MessageAttributes {
			if *v.DataType != "String" {
				t.Errorf("%s has the type %s", name, *v.DataType)
			}
			seen[name] = aws.ToString(v.StringValue)
		}
		id := seen["postrider-id"]
		if diff := cmp.Diff(want[id], seen); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
