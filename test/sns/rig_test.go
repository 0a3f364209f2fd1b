// Package sns_test runs broker/snsbroker against an emulator whose topics have
// queues, through a proxy that makes it fail as the real service does now and
// then, and reads the queues with broker/sqsbroker.
package sns_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/postrider/postrider/broker/snsbroker"
	"github.com/postrider/postrider/test/internal/awsrig"
)

// rig is an emulator behind a proxy, with clients of SNS.
type rig struct {
	*awsrig.Rig
	client *sns.Client // through the proxy, one attempt for each call
	sts    *sts.Client // as client
	topics *sns.Client // to the emulator
}

func newRig(t testing.TB) *rig {
	t.Helper()
	return with(awsrig.New(t))
}

func with(r *awsrig.Rig) *rig {
	return &rig{Rig: r, client: sns.NewFromConfig(r.Through), sts: sts.NewFromConfig(r.Through), topics: sns.NewFromConfig(r.Direct)}
}

// topic creates a topic and returns its name and ARN.
func (r *rig) topic(suffix string, attributes map[string]string) (topic, arn string) {
	r.T.Helper()
	topic = awsrig.Name(suffix)
	out, err := r.topics.CreateTopic(r.T.Context(), &sns.CreateTopicInput{Name: aws.String(topic), Attributes: attributes})
	if err != nil {
		r.T.Fatal(err)
	}
	return topic, aws.ToString(out.TopicArn)
}

// queue creates a queue, subscribed to the topic, and returns its name.
func (r *rig) queue(topicARN string, raw bool) string {
	r.T.Helper()
	suffix := ""
	if strings.HasSuffix(topicARN, ".fifo") {
		suffix = ".fifo"
	}
	queue := r.Queue(suffix, nil)
	arn := strings.Replace(topicARN[:strings.LastIndexByte(topicARN, ':')+1], ":sns:", ":sqs:", 1) + queue
	_, err := r.topics.Subscribe(r.T.Context(), &sns.SubscribeInput{
		TopicArn: aws.String(topicARN), Protocol: aws.String("sqs"), Endpoint: aws.String(arn),
		Attributes: map[string]string{"RawMessageDelivery": strconv.FormatBool(raw)},
	})
	if err != nil {
		r.T.Fatal(err)
	}
	return queue
}

// pair is a topic with one queue.
func (r *rig) pair(suffix string) (topic, queue string) {
	r.T.Helper()
	topic, arn := r.topic(suffix, nil)
	return topic, r.queue(arn, true)
}

func (r *rig) publisher(cfg snsbroker.PublisherConfig) *snsbroker.Publisher {
	r.T.Helper()
	if cfg.Client == nil {
		cfg.Client = r.client
	}
	cfg.STS = r.sts
	p, err := snsbroker.NewPublisher(cfg)
	if err != nil {
		r.T.Fatal(err)
	}
	return p
}
