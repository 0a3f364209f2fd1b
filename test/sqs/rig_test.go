// Package sqs_test runs broker/sqsbroker against an emulator, through a proxy
// that makes it fail as the real service does now and then.
package sqs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/test/internal/awsrig"
)

// rig is an emulator behind a proxy.
type rig struct{ *awsrig.Rig }

func newRig(t testing.TB) *rig {
	t.Helper()
	return &rig{awsrig.New(t)}
}

// withDeadLetters creates a queue and its dead-letter queue.
func (r *rig) withDeadLetters(maxReceives int) (queue, dead string) {
	r.T.Helper()
	dead = r.Queue("-dead", nil)
	return r.Queue("", map[string]string{"RedrivePolicy": fmt.Sprintf(
		`{"deadLetterTargetArn":"arn:aws:sqs:%s:000000000000:%s","maxReceiveCount":"%d"}`, awsemulator.Region, dead, maxReceives)}), dead
}

func (r *rig) publisher(cfg sqsbroker.PublisherConfig) *sqsbroker.Publisher {
	r.T.Helper()
	if cfg.Client == nil {
		cfg.Client = r.SQS
	}
	p, err := sqsbroker.NewPublisher(cfg)
	if err != nil {
		r.T.Fatal(err)
	}
	return p
}

func (r *rig) mustLeft(queue string) int {
	r.T.Helper()
	n, err := r.Left(r.T.Context(), queue)
	if err != nil {
		r.T.Fatal(err)
	}
	return n
}

// until waits for the condition.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
