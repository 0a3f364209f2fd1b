package snsbroker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/postrider/postrider/internal/awsbody"
	"github.com/postrider/postrider/internal/awsmsg"
	"github.com/postrider/postrider/outbox"
)

// Up to 256 characters, .fifo included:
// https://docs.aws.amazon.com/sns/latest/api/API_CreateTopic.html
var topicName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.fifo)?$`)

const maxTopicName = 256

// checkTopic says what is wrong with a topic's name or ARN.
func checkTopic(s string) error {
	name := s
	switch {
	case s == "":
		return errors.New("no topic is named: give its name or ARN")
	case isARN(s):
		a, err := arn.Parse(s)
		if err != nil || a.Service != "sns" || a.Region == "" || a.AccountID == "" {
			return fmt.Errorf("topic %q is not the ARN of a topic: want arn:aws:sns:REGION:ACCOUNT:NAME", s)
		}
		name = a.Resource
	}
	if len(name) > maxTopicName || !topicName.MatchString(name) {
		return fmt.Errorf("topic %q: SNS takes names of 1 to %d letters, digits, hyphens and underscores, with .fifo at the end or not", s, maxTopicName)
	}
	return nil
}

func isARN(topic string) bool { return strings.HasPrefix(topic, "arn:") }

// account finds the ARNs of topics that are given by name.
type account struct {
	sts    *sts.Client // nil: all topics are given by ARN
	region string

	mu     sync.Mutex
	prefix string // of the ARN of every topic of the account; empty: not known yet
}

// Resolve implements awsmsg.Broker: it returns the topic's ARN.
func (a *account) Resolve(ctx context.Context, topic string) (string, error) {
	if isARN(topic) {
		return topic, nil
	}
	a.mu.Lock()
	prefix := a.prefix
	a.mu.Unlock()
	if prefix != "" {
		return prefix + topic, nil
	}
	prefix, err := a.lookUp(ctx)
	if err != nil {
		return "", err
	}
	a.mu.Lock()
	a.prefix = prefix
	a.mu.Unlock()
	return prefix + topic, nil
}

func (a *account) lookUp(ctx context.Context) (string, error) {
	out, err := a.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}, func(o *sts.Options) {
		o.HTTPClient = awsbody.Wrap(o.HTTPClient)
	})
	if err != nil {
		return "", awsmsg.Classify(ctx, fmt.Errorf("snsbroker: ask STS for the account: %w", err))
	}
	caller, err := arn.Parse(aws.ToString(out.Arn))
	if err != nil {
		return "", outbox.Unavailable(fmt.Errorf("snsbroker: STS told the caller %q: %w", aws.ToString(out.Arn), err))
	}
	topics := arn.ARN{Partition: caller.Partition, Service: "sns", Region: a.region, AccountID: aws.ToString(out.Account)}
	return topics.String(), nil
}
