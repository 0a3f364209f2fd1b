package awsemulator_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/examples/orders/awsemulator"
)

func TestServersAreOneUntilTheLastIsClosed(t *testing.T) {
	var wg sync.WaitGroup
	servers := make([]*awsemulator.Server, 8)
	for i := range servers {
		wg.Go(func() { servers[i] = awsemulator.Start() })
	}
	wg.Wait()
	last := servers[len(servers)-1]
	for _, s := range servers[:len(servers)-1] {
		s.Close()
		s.Close()
	}
	client := sqs.NewFromConfig(last.Config())
	if _, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("one")}); err != nil {
		t.Errorf("the last one is gone: %v", err)
	}
	last.Close()
	if resp, err := http.Get(last.Endpoint); err == nil {
		resp.Body.Close()
		t.Error("it answers after Close")
	}
	again := awsemulator.Start()
	defer again.Close()
	if _, err := sqs.NewFromConfig(again.Config()).GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("one")}); err != nil {
		t.Errorf("started again: %v", err)
	}
}
