package sqsbroker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/outbox"
)

func wants(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in: %v", text, err)
		}
	}
}

func TestPublisherConfig(t *testing.T) {
	_, err := sqsbroker.NewPublisher(sqsbroker.PublisherConfig{Queue: "a b", Encoding: "utf7", Concurrency: -1, MaxBytes: 2 << 20})
	wants(t, err, "no client", `"a b"`, `"utf7"`, "-1", "2097152")
	client := clientFor("http://127.0.0.1:1")
	for queue, good := range map[string]bool{
		"orders": true, "orders.fifo": true, "{topic}": true, "eu-{topic}-{type}.fifo": true, "arn:aws:sqs:eu-west-1:123456789012:orders": true,
		"arn:aws-cn:sqs:cn-north-1:123456789012:orders.fifo": true, queueURL: true, "http://localhost:4566/000000000000/{key}": true,
		"": false, "{table}": false, "orders.fifo.x": false, strings.Repeat("x", 80): true, strings.Repeat("x", 81): false,
		strings.Repeat("x", 75) + ".fifo": true, strings.Repeat("x", 76) + ".fifo": false,
		"arn:aws:sns:eu-west-1:123456789012:orders": false, "https://sqs.us-east-1.amazonaws.com/123456789012/": false, "sqs://orders": false,
	} {
		if _, err := sqsbroker.NewPublisher(sqsbroker.PublisherConfig{Client: client, Queue: queue}); (err == nil) != good {
			t.Errorf("queue %q: %v", queue, err)
		}
	}
}

func TestConsumerConfig(t *testing.T) {
	_, err := sqsbroker.NewConsumer(sqsbroker.ConsumerConfig{
		Queue: "{topic}", Handlers: -1, WaitTime: 21 * time.Second, VisibilityTimeout: 1500 * time.Millisecond, RetryMax: 13 * time.Hour,
	})
	wants(t, err, "no client", "{topic}", "handlers: -1", "wait time: 21s", "1.5s: SQS counts in whole seconds", "retry max: 13h")
}

func TestConstructorsSendNothing(t *testing.T) {
	client := clientFor("http://127.0.0.1:1") // would fail
	if _, err := sqsbroker.NewPublisher(sqsbroker.PublisherConfig{Client: client, Queue: "orders"}); err != nil {
		t.Error(err)
	}
	if _, err := sqsbroker.NewConsumer(sqsbroker.ConsumerConfig{Client: client, Queue: "orders"}); err != nil {
		t.Error(err)
	}
}

func ExampleNewPublisher() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx) // AWS_REGION, AWS_ENDPOINT_URL, the credential chain
	if err != nil {
		panic(err)
	}
	publisher, err := sqsbroker.NewPublisher(sqsbroker.PublisherConfig{Client: sqs.NewFromConfig(cfg), Queue: "orders"})
	if err != nil {
		panic(err)
	}
	for _, result := range publisher.Publish(ctx, []outbox.Message{{Topic: "orders", Payload: []byte(`{"orderId":"1"}`)}}) {
		fmt.Println(result.BrokerID, result.Err)
	}
}

func ExampleNewConsumer() {
	ctx := context.Background() // ends when the consumer is to stop
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		panic(err)
	}
	consumer, err := sqsbroker.NewConsumer(sqsbroker.ConsumerConfig{Client: sqs.NewFromConfig(cfg), Queue: "orders"})
	if err != nil {
		panic(err)
	}
	err = consumer.Consume(ctx, func(_ context.Context, m outbox.Message) error {
		fmt.Printf("%s %s\n", m.Type, m.Payload)
		return nil // only now the message is deleted
	})
	fmt.Println(err)
}
