package snsbroker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/postrider/postrider/broker/snsbroker"
	"github.com/postrider/postrider/outbox"
)

func TestPublisherConfig(t *testing.T) {
	_, err := snsbroker.NewPublisher(snsbroker.PublisherConfig{Topic: "a b", Encoding: "utf7", Concurrency: -1, MaxBytes: 2 << 20})
	for _, text := range []string{"no client", `"a b"`, `"utf7"`, "-1", "2097152"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in: %v", text, err)
		}
	}
	_, err = snsbroker.NewPublisher(snsbroker.PublisherConfig{Client: sns.New(sns.Options{}), Topic: "orders"})
	if err == nil || !strings.Contains(err.Error(), "STS") {
		t.Errorf("a name without STS: %v", err)
	}
	for topic, good := range map[string]bool{
		"orders": true, "orders.fifo": true, "{topic}": true, "eu-{topic}-{type}.fifo": true, "arn:aws:sns:eu-west-1:123456789012:orders": true,
		"arn:aws-cn:sns:cn-north-1:123456789012:{topic}.fifo": true, strings.Repeat("x", 256): true, strings.Repeat("x", 251) + ".fifo": true,
		"": false, "{table}": false, "orders.fifo.x": false, strings.Repeat("x", 257): false, strings.Repeat("x", 252) + ".fifo": false,
		"arn:aws:sqs:eu-west-1:123456789012:orders": false, "arn:aws:sns:eu-west-1:123456789012:orders:8f4ae5c6-subscription": false,
		"arn:aws:sns::123456789012:orders": false, "arn:aws:sns:eu-west-1::orders": false, "arn:orders": false,
		"https://sns.us-east-1.amazonaws.com/": false, "sns://orders": false,
	} {
		cfg := snsbroker.PublisherConfig{Client: sns.New(sns.Options{}), STS: sts.New(sts.Options{}), Topic: topic}
		if _, err := snsbroker.NewPublisher(cfg); (err == nil) != good {
			t.Errorf("topic %q: %v", topic, err)
		}
	}
}

func ExampleNewPublisher() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx) // AWS_REGION, AWS_ENDPOINT_URL, the credential chain
	if err != nil {
		panic(err)
	}
	publisher, err := snsbroker.NewPublisher(snsbroker.PublisherConfig{
		Client: sns.NewFromConfig(cfg), Topic: "orders", STS: sts.NewFromConfig(cfg),
	})
	if err != nil {
		panic(err)
	}
	for _, result := range publisher.Publish(ctx, []outbox.Message{{Topic: "orders", Payload: []byte(`{"orderId":"1"}`)}}) {
		fmt.Println(result.BrokerID, result.Err)
	}
}
