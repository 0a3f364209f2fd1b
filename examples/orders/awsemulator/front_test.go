package awsemulator_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	"github.com/google/uuid"

	"github.com/postrider/postrider/examples/orders/awsemulator"
)

type rig struct {
	t          *testing.T
	sns        *sns.Client
	sqs        *sqs.Client
	topic, url *string
}

// newRig makes a topic and a queue that is subscribed to it.
func newRig(t *testing.T, suffix string) *rig {
	t.Helper()
	server := awsemulator.Start()
	t.Cleanup(server.Close)
	r := &rig{t: t, sns: sns.NewFromConfig(server.Config()), sqs: sqs.NewFromConfig(server.Config())}
	name := aws.String("front-" + uuid.NewString() + suffix)
	attributes := map[string]string{}
	if suffix != "" {
		attributes["FifoQueue"] = "true"
	}
	queue, err := r.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: name, Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	r.url = queue.QueueUrl
	topic, err := r.sns.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	r.topic = topic.TopicArn
	_, err = r.sns.Subscribe(t.Context(), &sns.SubscribeInput{
		TopicArn: r.topic, Protocol: aws.String("sqs"), Endpoint: aws.String(strings.Replace(*r.topic, ":sns:", ":sqs:", 1)),
		Attributes: map[string]string{"RawMessageDelivery": "true"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) publish(entries ...types.PublishBatchRequestEntry) (*sns.PublishBatchOutput, error) {
	return r.sns.PublishBatch(r.t.Context(), &sns.PublishBatchInput{TopicArn: r.topic, PublishBatchRequestEntries: entries})
}

func entry(id, message string) types.PublishBatchRequestEntry {
	return types.PublishBatchRequestEntry{Id: &id, Message: &message, MessageAttributes: map[string]types.MessageAttributeValue{
		"text":   {DataType: aws.String("String"), StringValue: aws.String("<é & 1>")},
		"number": {DataType: aws.String("String"), StringValue: aws.String("1")},
		"bytes":  {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255}},
	}}
}

func (r *rig) refused(want string, entries ...types.PublishBatchRequestEntry) {
	r.t.Helper()
	_, err := r.publish(entries...)
	if api, ok := errors.AsType[smithy.APIError](err); !ok || api.ErrorCode() != want {
		r.t.Errorf("%v, want %s", err, want)
	}
}

func TestPublishBatch(t *testing.T) {
	r := newRig(t, "")
	r.topic = aws.String(strings.Replace(*r.topic, awsemulator.Region, "eu-west-1", 1)) // the client's, not the emulator's
	want := map[string]bool{"42": true, "true": true, "<é & 🐎>\r\n": true}
	out, err := r.publish(entry("a", "42"), entry("b", "true"), entry("c", "<é & 🐎>\r\n"))
	if err != nil || len(out.Successful) != 3 || *out.Successful[2].Id != "c" || *out.Successful[2].MessageId == "" {
		t.Fatalf("%+v, %v", out, err)
	}
	got, err := r.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: r.url, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"}})
	if err != nil || len(got.Messages) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, m := range got.Messages {
		if !want[*m.Body] {
			t.Errorf("body %q", *m.Body)
		}
		a := m.MessageAttributes
		if len(a) != 3 || *a["text"].StringValue != "<é & 1>" || *a["number"].StringValue != "1" || string(a["bytes"].BinaryValue) != "\x00\xff" {
			t.Errorf("attributes %+v", a)
		}
	}
}

func TestPublishBatchRefuses(t *testing.T) {
	r := newRig(t, "")
	large := strings.Repeat("x", 130<<10)
	r.refused("BatchRequestTooLong", entry("a", large), entry("b", large))
	r.refused("BatchEntryIdsNotDistinct", entry("a", "1"), entry("a", "2"))
	var many []types.PublishBatchRequestEntry
	for _, id := range strings.Split("abcdefghijk", "") {
		many = append(many, entry(id, "x"))
	}
	r.refused("TooManyEntriesInBatchRequest", many...)
	_, err := r.sns.SetTopicAttributes(t.Context(), &sns.SetTopicAttributesInput{
		TopicArn: r.topic, AttributeName: aws.String("MaximumMessageSize"), AttributeValue: aws.String("1048576"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := r.publish(entry("a", large), entry("b", large)); err != nil || len(out.Successful) != 2 {
		t.Errorf("within the topic's own limit: %+v, %v", out, err)
	}
	r.topic = aws.String(*r.topic + "-gone")
	r.refused("NotFound", entry("a", "1"))

	r = newRig(t, ".fifo")
	if out, err := r.publish(entry("a", "1")); err != nil || len(out.Failed) != 1 || *out.Failed[0].Code != "InvalidParameter" || !out.Failed[0].SenderFault {
		t.Errorf("without a group: %+v, %v", out, err)
	}
}

// The SDK has nothing to complain about in the answers of DynamoDB.
func TestDynamoDBAnswersAreTaken(t *testing.T) {
	server := awsemulator.Start()
	t.Cleanup(server.Close)
	cfg := server.Config()
	cfg.Logger = logging.LoggerFunc(func(_ logging.Classification, format string, values ...any) {
		t.Errorf(format, values...)
	})
	if _, err := dynamodb.NewFromConfig(cfg).ListTables(t.Context(), &dynamodb.ListTablesInput{}); err != nil {
		t.Error(err)
	}
}
