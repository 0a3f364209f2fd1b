package cloud

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// allowTopic lets the topic send to the queue, and SNS on behalf of no other
// topic. What else the queue's policy says stays.
// https://docs.aws.amazon.com/sns/latest/dg/subscribe-sqs-queue-to-sns-topic.html
func allowTopic(ctx context.Context, client *sqs.Client, q queue, topicARN string) error {
	has, err := q.attribute(ctx, client, types.QueueAttributeNamePolicy)
	if err != nil {
		return err
	}
	policy, changed, err := withTopic(has, q.arn, topicARN)
	if err != nil {
		return fmt.Errorf("policy of queue %q: %w", q.name, err)
	}
	if !changed {
		return nil
	}
	return q.set(ctx, client, map[string]string{string(types.QueueAttributeNamePolicy): policy})
}

// withTopic returns the policy with a statement for the topic. The statement's
// id is made of the topic's ARN, so it is found again.
func withTopic(policy, queueARN, topicARN string) (with string, changed bool, err error) {
	document := map[string]any{"Version": "2012-10-17"}
	if policy != "" {
		if err := json.Unmarshal([]byte(policy), &document); err != nil {
			return "", false, fmt.Errorf("it is not JSON: %w", err)
		}
	}
	sum := sha256.Sum256([]byte(topicARN))
	id := "Topic" + hex.EncodeToString(sum[:8])
	statement := map[string]any{
		"Sid":       id,
		"Effect":    "Allow",
		"Principal": map[string]any{"Service": "sns.amazonaws.com"},
		"Action":    "sqs:SendMessage",
		"Resource":  queueARN,
		"Condition": map[string]any{"ArnEquals": map[string]any{"aws:SourceArn": topicARN}},
	}
	var statements []any
	switch had := document["Statement"].(type) {
	case []any:
		statements = had
	case map[string]any: // a single one may stand without brackets
		statements = []any{had}
	}
	found := false
	for i, s := range statements {
		if had, ok := s.(map[string]any); ok && had["Sid"] == id {
			found = true
			changed = !reflect.DeepEqual(had, statement)
			statements[i] = statement
		}
	}
	if !found {
		statements, changed = append(statements, statement), true
	}
	document["Statement"] = statements
	out, err := json.Marshal(document)
	if err != nil {
		return "", false, fmt.Errorf("encode it: %w", err)
	}
	return string(out), changed, nil
}
