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
	dead, err := createQueue(ctx, client, DeadLetterQueue(name), map[string]string{
		"MessageRetentionPeriod": strconv.Itoa(deadRetention),
	})
	if err != nil {
		return err
	}
	attributes, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl:       &dead,
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		return fmt.Errorf("read the ARN of queue %q: %w", DeadLetterQueue(name), err)
	}
	redrive, err := json.Marshal(map[string]string{
		"deadLetterTargetArn": attributes.Attributes[string(types.QueueAttributeNameQueueArn)],
		"maxReceiveCount":     strconv.Itoa(MaxReceives),
	})
	if err != nil {
		return fmt.Errorf("encode a redrive policy: %w", err)
	}
	_, err = createQueue(ctx, client, name, map[string]string{
		"RedrivePolicy":                 string(redrive),
		"ReceiveMessageWaitTimeSeconds": strconv.Itoa(longPoll),
	})
	return err
}

// createQueue creates the queue without attributes, because SQS refuses to
// "create" an existing one with others than it has, and then sets them.
func createQueue(ctx context.Context, client *sqs.Client, name string, attributes map[string]string) (url string, err error) {
	input := &sqs.CreateQueueInput{QueueName: &name}
	if strings.HasSuffix(name, ".fifo") {
		input.Attributes = map[string]string{"FifoQueue": "true"}
	}
	created, err := client.CreateQueue(ctx, input)
	if err != nil {
		return "", fmt.Errorf("create queue %q: %w", name, err)
	}
	url = aws.ToString(created.QueueUrl)
	_, err = client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: attributes})
	if err != nil {
		return "", fmt.Errorf("set the attributes of queue %q: %w", name, err)
	}
	return url, nil
}
