package sns_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/broker/snsbroker"
	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/test/internal/awsrig"
)

func (r *rig) attribute(queue string, name types.QueueAttributeName) string {
	r.T.Helper()
	out, err := r.Queues.GetQueueAttributes(r.T.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: r.URL(queue), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		r.T.Fatal(err)
	}
	return out.Attributes[string(name)]
}

// impatient ends the queues' long polls, which provisioning asks for and a test
// would wait for.
func (r *rig) impatient(queues ...string) {
	r.T.Helper()
	const wait = types.QueueAttributeNameReceiveMessageWaitTimeSeconds
	for _, queue := range queues {
		if got := r.attribute(queue, wait); got != "20" {
			r.T.Errorf("queue %s: long polls of %q s, want 20", queue, got)
		}
		_, err := r.Queues.SetQueueAttributes(r.T.Context(), &sqs.SetQueueAttributesInput{QueueUrl: r.URL(queue), Attributes: map[string]string{string(wait): "0"}})
		if err != nil {
			r.T.Fatal(err)
		}
	}
}

// What provisioning promises, after one run, after a second, and on top of what
// somebody made by hand.
func TestProvisionedFanOut(t *testing.T) {
	for _, suffix := range []string{"", ".fifo"} {
		r := newRig(t)
		topic := awsrig.Name(suffix)
		queues := []string{awsrig.Name("-orders" + suffix), awsrig.Name("-mails" + suffix), awsrig.Name("-analytics" + suffix), awsrig.Name("-search" + suffix)}
		var arn string
		for range 2 {
			got, err := cloud.EnsureFanOut(t.Context(), r.topics, r.Queues, topic, queues...)
			if err != nil {
				t.Fatal(err)
			}
			if arn != "" && got != arn || !strings.HasSuffix(got, ":"+topic) {
				t.Errorf("topic %s, then %s", arn, got)
			}
			arn = got
		}
		subscribed := map[string]map[string]string{}
		subs, err := r.topics.ListSubscriptionsByTopic(t.Context(), &sns.ListSubscriptionsByTopicInput{TopicArn: &arn})
		if err != nil || len(subs.Subscriptions) != len(queues) {
			t.Fatalf("%d subscriptions after two runs, want %d: %v", len(subs.Subscriptions), len(queues), err)
		}
		for _, s := range subs.Subscriptions {
			out, err := r.topics.GetSubscriptionAttributes(t.Context(), &sns.GetSubscriptionAttributesInput{SubscriptionArn: s.SubscriptionArn})
			if err != nil {
				t.Fatal(err)
			}
			subscribed[*s.Endpoint] = out.Attributes
		}
		for _, queue := range queues {
			self, dead := r.attribute(queue, "QueueArn"), r.attribute(cloud.DeadLetterQueue(queue), "QueueArn")
			if got := subscribed[self]; got["RawMessageDelivery"] != "true" || got["RedrivePolicy"] != `{"deadLetterTargetArn":"`+dead+`"}` {
				t.Errorf("the subscription of %s: %v", queue, got)
			}
			if got, want := r.attribute(queue, "RedrivePolicy"), `{"deadLetterTargetArn":"`+dead+`","maxReceiveCount":"5"}`; got != want {
				t.Errorf("redrive policy %s, want %s", got, want)
			}
			for name, resource := range map[string]string{queue: self, cloud.DeadLetterQueue(queue): dead} {
				var policy struct{ Statement []map[string]any }
				if err := json.Unmarshal([]byte(r.attribute(name, "Policy")), &policy); err != nil || len(policy.Statement) != 1 {
					t.Fatalf("policy of %s: %v, %v", name, policy, err)
				}
				delete(policy.Statement[0], "Sid")
				want := map[string]any{
					"Effect": "Allow", "Principal": map[string]any{"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage",
					"Resource": resource, "Condition": map[string]any{"ArnEquals": map[string]any{"aws:SourceArn": arn}},
				}
				if diff := cmp.Diff(want, policy.Statement[0]); diff != "" {
					t.Errorf("policy of %s (-want +got):\n%s", name, diff)
				}
			}
		}
		r.impatient(queues...)
		msgs := awsrig.Orders(t, 12)
		r.All(r.publisher(snsbroker.PublisherConfig{Topic: topic}), msgs)
		for _, queue := range queues {
			r.Once(queue, msgs...)
		}
	}
}

func TestProvisioningMendsAndKeeps(t *testing.T) {
	r := newRig(t)
	topic, arn := r.topic("", nil)
	queue := r.queue(arn, false) // not raw
	theirs := `{"Version":"2008-10-17","Statement":{"Sid":"theirs","Effect":"Deny","Principal":"*","Action":"sqs:*","Resource":"*"}}`
	_, err := r.Queues.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: r.URL(queue), Attributes: map[string]string{"Policy": theirs}})
	if err != nil {
		t.Fatal(err)
	}
	subs, err := r.topics.ListSubscriptionsByTopic(t.Context(), &sns.ListSubscriptionsByTopicInput{TopicArn: &arn})
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"FilterPolicy": `{"EventType":["order.created"]}`, "RedrivePolicy": `{"deadLetterTargetArn":"arn:of:theirs"}`} {
		_, err = r.topics.SetSubscriptionAttributes(t.Context(), &sns.SetSubscriptionAttributesInput{
			SubscriptionArn: subs.Subscriptions[0].SubscriptionArn, AttributeName: aws.String(name), AttributeValue: aws.String(value),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	other := awsrig.Name("")
	for _, topic := range []string{topic, other, topic} {
		if _, err := cloud.EnsureFanOut(t.Context(), r.topics, r.Queues, topic, queue); err != nil {
			t.Fatal(err)
		}
	}
	out, err := r.topics.GetSubscriptionAttributes(t.Context(), &sns.GetSubscriptionAttributesInput{SubscriptionArn: subs.Subscriptions[0].SubscriptionArn})
	if err != nil {
		t.Fatal(err)
	}
	if a := out.Attributes; a["RawMessageDelivery"] != "true" || a["FilterPolicy"] == "" || a["RedrivePolicy"] != `{"deadLetterTargetArn":"arn:of:theirs"}` {
		t.Errorf("the subscription: %v", a)
	}
	var policy struct {
		Version   string
		Statement []struct{ Sid string }
	}
	if err := json.Unmarshal([]byte(r.attribute(queue, "Policy")), &policy); err != nil {
		t.Fatal(err)
	}
	if policy.Version != "2008-10-17" || len(policy.Statement) != 3 || policy.Statement[0].Sid != "theirs" || policy.Statement[1].Sid == policy.Statement[2].Sid {
		t.Errorf("the policy: %+v", policy)
	}
}

// A message that a service cannot take ends in that service's dead-letter queue
// and disturbs no other.
func TestDeadLettersOfOneService(t *testing.T) {
	r := newRig(t)
	good, bad := awsrig.Name("-good"), awsrig.Name("-bad")
	topic := awsrig.Name("")
	if _, err := cloud.EnsureFanOut(t.Context(), r.topics, r.Queues, topic, good, bad); err != nil {
		t.Fatal(err)
	}
	r.impatient(good, bad)
	msgs := awsrig.Orders(t, 3)
	r.All(r.publisher(snsbroker.PublisherConfig{Topic: topic}), msgs)
	for range 2 * cloud.MaxReceives {
		out, err := r.Queues.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: r.URL(bad), MaxNumberOfMessages: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range out.Messages {
			_, err := r.Queues.ChangeMessageVisibility(t.Context(), &sqs.ChangeMessageVisibilityInput{QueueUrl: r.URL(bad), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 0})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		n, err := r.Left(t.Context(), cloud.DeadLetterQueue(bad))
		if err != nil {
			t.Fatal(err)
		}
		if n == len(msgs) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d dead letters, want %d", n, len(msgs))
		}
	}
	r.Once(good, msgs...)
	r.Once(cloud.DeadLetterQueue(bad), msgs...)
}
