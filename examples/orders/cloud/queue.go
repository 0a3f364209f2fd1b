package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	// MaxReceives is how often a queue hands a message out before it goes to
	// the dead-letter queue.
	MaxReceives = 5
	// deadRetention is how long dead letters are kept, in seconds: 14 days, the
	// most that SQS allows.
	deadRetention = 14 * 24 * 60 * 60
	// longPoll is how long a receive waits for messages, in seconds, where the
	// receiver does not say: the most that SQS allows.
	longPoll = 20
)

// DeadLetterQueue is the name of a queue's dead-letter queue.
func DeadLetterQueue(queue string) string {
	if base, fifo := strings.CutSuffix(queue, ".fifo"); fifo {
		return base + "-dlq.fifo"
	}
	return queue + "-dlq"
}

// EnsureQueue creates a queue and its dead-letter queue where they are missing,
// and sets what the services rely on: the redrive after MaxReceives, long polls
// and the dead letters' retention. Other settings of existing queues stay. A
// name that ends in ".fifo" makes FIFO queues.
func EnsureQueue(ctx context.Context, client *sqs.Client, name string) error {
	_, _, err := ensureQueue(ctx, client, name)
	return err
}

// queue is one that exists.
type queue struct{ name, url, arn string }

func ensureQueue(ctx context.Context, client *sqs.Client, name string) (q, dead queue, err error) {
	dead, err = createQueue(ctx, client, DeadLetterQueue(name), map[string]string{
		"MessageRetentionPeriod": strconv.Itoa(deadRetention),
	})
	if err != nil {
		return q, dead, err
	}
	redrive, err := json.Marshal(map[string]string{
		"deadLetterTargetArn": dead.arn,
		"maxReceiveCount":     strconv.Itoa(MaxReceives),
	})
	if err != nil {
		return q, dead, fmt.Errorf("encode a redrive policy: %w", err)
	}
	q, err = createQueue(ctx, client, name, map[string]string{
		"RedrivePolicy":                 string(redrive),
		"ReceiveMessageWaitTimeSeconds": strconv.Itoa(longPoll),
	})
	return q, dead, err
}

// attribute reads one attribute of the queue; empty if it has none.
func (q queue) attribute(ctx context.Context, client *sqs.Client, name types.QueueAttributeName) (string, error) {
	out, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &q.url, AttributeNames: []types.QueueAttributeName{name},
	})
	if err != nil {
		return "", fmt.Errorf("read the attribute %s of queue %q: %w", name, q.name, err)
	}
	return out.Attributes[string(name)], nil
}

func (q queue) set(ctx context.Context, client *sqs.Client, attributes map[string]string) error {
	_, err := client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: &q.url, Attributes: attributes})
	if err != nil {
		return fmt.Errorf("set the attributes of queue %q: %w", q.name, err)
	}
	return nil
}

// createQueue creates the queue without attributes, because SQS refuses to
// "create" an existing one with others than it has, and then sets them.
func createQueue(ctx context.Context, client *sqs.Client, name string, attributes map[string]string) (queue, error) {
	input := &sqs.CreateQueueInput{QueueName: &name}
	if strings.HasSuffix(name, ".fifo") {
		input.Attributes = map[string]string{"FifoQueue": "true"}
	}
	created, err := client.CreateQueue(ctx, input)
	if err != nil {
		return queue{}, fmt.Errorf("create queue %q: %w", name, err)
	}
	q := queue{name: name, url: aws.ToString(created.QueueUrl)}
	if q.arn, err = q.attribute(ctx, client, types.QueueAttributeNameQueueArn); err != nil {
		return q, err
	}
	return q, q.set(ctx, client, attributes)
}
