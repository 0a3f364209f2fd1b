package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// EnsureFanOut creates what is missing of a topic, of queues (each as
// EnsureQueue does) and of their subscriptions, and returns the topic's ARN.
// Each queue gets every message raw, as if it had been sent to the queue, and
// lets this topic alone send to it. What SNS cannot deliver goes to the queue's
// dead-letter queue. It is safe to run again. The names of a FIFO topic and of
// its queues end in ".fifo".
func EnsureFanOut(ctx context.Context, topics *sns.Client, queues *sqs.Client, topic string, names ...string) (topicARN string, err error) {
	if topicARN, err = EnsureTopic(ctx, topics, topic); err != nil {
		return "", err
	}
	subscribed, err := subscriptions(ctx, topics, topicARN)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		q, dead, err := ensureQueue(ctx, queues, name)
		if err != nil {
			return "", err
		}
		// The rights come first, or SNS could not deliver the first messages.
		for _, target := range []queue{q, dead} {
			if err := allowTopic(ctx, queues, target, topicARN); err != nil {
				return "", err
			}
		}
		if err := ensureSubscription(ctx, topics, topicARN, subscribed[q.arn], q, dead); err != nil {
			return "", err
		}
	}
	return topicARN, nil
}

// EnsureTopic creates a topic unless it exists, and returns its ARN. A name
// that ends in ".fifo" makes a FIFO topic. Settings of an existing topic stay.
func EnsureTopic(ctx context.Context, client *sns.Client, name string) (arn string, err error) {
	input := &sns.CreateTopicInput{Name: &name}
	if strings.HasSuffix(name, ".fifo") {
		input.Attributes = map[string]string{"FifoTopic": "true"}
	}
	created, err := client.CreateTopic(ctx, input)
	if err != nil {
		return "", fmt.Errorf("create topic %q: %w", name, err)
	}
	return aws.ToString(created.TopicArn), nil
}

const protocolSQS = "sqs"

// subscriptions returns the ARNs of the topic's subscriptions by the ARNs of
// their queues.
func subscriptions(ctx context.Context, client *sns.Client, topicARN string) (map[string]string, error) {
	found := map[string]string{}
	pages := sns.NewListSubscriptionsByTopicPaginator(client, &sns.ListSubscriptionsByTopicInput{TopicArn: &topicARN})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the subscriptions of topic %s: %w", topicARN, err)
		}
		for _, s := range page.Subscriptions {
			if aws.ToString(s.Protocol) == protocolSQS {
				found[aws.ToString(s.Endpoint)] = subscriptionARN(s)
			}
		}
	}
	return found, nil
}

// subscriptionARN is empty while the subscription waits for a confirmation.
func subscriptionARN(s types.Subscription) string {
	if arn := aws.ToString(s.SubscriptionArn); strings.HasPrefix(arn, "arn:") {
		return arn
	}
	return ""
}

// Attributes of subscriptions:
// https://docs.aws.amazon.com/sns/latest/api/API_SetSubscriptionAttributes.html
const (
	attrRaw     = "RawMessageDelivery"
	attrRedrive = "RedrivePolicy"
)

// ensureSubscription subscribes the queue, or mends the subscription that it
// has. Other attributes of that, such as a filter, stay.
func ensureSubscription(ctx context.Context, client *sns.Client, topicARN, existing string, q, dead queue) error {
	redrive, err := json.Marshal(map[string]string{"deadLetterTargetArn": dead.arn})
	if err != nil {
		return fmt.Errorf("encode a redrive policy: %w", err)
	}
	want := map[string]string{attrRaw: "true", attrRedrive: string(redrive)}
	if existing == "" {
		_, err := client.Subscribe(ctx, &sns.SubscribeInput{
			TopicArn: &topicARN, Protocol: aws.String(protocolSQS), Endpoint: &q.arn, Attributes: want, ReturnSubscriptionArn: true,
		})
		if err != nil {
			return fmt.Errorf("subscribe queue %q to topic %s: %w", q.name, topicARN, err)
		}
		return nil
	}
	has, err := client.GetSubscriptionAttributes(ctx, &sns.GetSubscriptionAttributesInput{SubscriptionArn: &existing})
	if err != nil {
		return fmt.Errorf("read the subscription of queue %q: %w", q.name, err)
	}
	for name, value := range want {
		if has.Attributes[name] == value || name == attrRedrive && has.Attributes[name] != "" {
			continue
		}
		_, err := client.SetSubscriptionAttributes(ctx, &sns.SetSubscriptionAttributesInput{
			SubscriptionArn: &existing, AttributeName: &name, AttributeValue: &value,
		})
		if err != nil {
			return fmt.Errorf("set %s of the subscription of queue %q: %w", name, q.name, err)
		}
	}
	return nil
}
