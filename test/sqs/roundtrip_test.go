package sqs_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/uuid"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/outbox"
)

func TestRoundTrip(t *testing.T) {
	srv := awsemulator.Start()
	defer srv.Close()
	client := sqs.NewFromConfig(srv.Config())
	name := "q-" + uuid.NewString()[:8]
	if _, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(name)}); err != nil {
		t.Fatal(err)
	}
	pub, err := sqsbroker.NewPublisher(sqsbroker.PublisherConfig{Client: client, Queue: name})
	if err != nil {
		t.Fatal(err)
	}
	var msgs []outbox.Message
	for i := range 35 {
		id, _ := outbox.NewID()
		msgs = append(msgs, outbox.Message{ID: id, Topic: "orders", Key: fmt.Sprint("k", i), Type: "order.created", Payload: []byte(fmt.Sprintf(`{"n":%d}`, i)), Headers: map[string]string{"a": "b", "traceparent": "x"}})
	}
	start := time.Now()
	for i, r := range pub.Publish(t.Context(), msgs) {
		if r.Err != nil || r.BrokerID == "" {
			t.Fatal(i, r)
		}
	}
	t.Log("published", time.Since(start))
	con, err := sqsbroker.NewConsumer(sqsbroker.ConsumerConfig{Client: client, Queue: name, WaitTime: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var mu sync.Mutex
	got := map[uuid.UUID]int{}
	err = con.Consume(ctx, func(_ context.Context, m outbox.Message) error {
		mu.Lock()
		defer mu.Unlock()
		got[m.ID]++
		if len(got) == len(msgs) {
			cancel()
		}
		return nil
	})
	t.Log("consumed", time.Since(start))
	if err != nil || len(got) != len(msgs) {
		t.Fatal(err, len(got))
	}
}
