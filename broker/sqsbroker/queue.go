package sqsbroker

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/internal/awsbody"
	"github.com/postrider/postrider/internal/awsmsg"
	"github.com/postrider/postrider/outbox"
)

// Up to 80 characters, .fifo included:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html
var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}(\.fifo)?$`)

// queueRef is a queue as people write it: a name, a URL or an ARN.
type queueRef struct {
	url     string // set if a URL was given
	name    string
	account string // owner, if an ARN was given
}

func (q queueRef) fifo() bool { return strings.HasSuffix(q.name, ".fifo") }

func parseQueue(s string) (queueRef, error) {
	var q queueRef
	switch {
	case s == "":
		return q, errors.New("no queue is named: give its name, URL or ARN")
	case strings.HasPrefix(s, "http://"), strings.HasPrefix(s, "https://"):
		u, err := url.Parse(s)
		if err != nil {
			return q, fmt.Errorf("queue %q is not a URL: %w", s, err)
		}
		q.url, q.name = s, u.Path[strings.LastIndexByte(u.Path, '/')+1:]
	case strings.HasPrefix(s, "arn:"):
		parts := strings.Split(s, ":")
		if len(parts) != 6 || parts[2] != "sqs" {
			return q, fmt.Errorf("queue %q is not the ARN of a queue: want arn:aws:sqs:REGION:ACCOUNT:NAME", s)
		}
		q.account, q.name = parts[4], parts[5]
	default:
		q.name = s
	}
	if len(q.name) > 80 || !queueName.MatchString(q.name) {
		return q, fmt.Errorf("queue %q: SQS takes names of 1 to 80 letters, digits, hyphens and underscores, with .fifo at the end or not", s)
	}
	return q, nil
}

func checkQueue(s string) error {
	_, err := parseQueue(s)
	return err
}

// QueueURL finds the URL of the queue that is given by name, URL or ARN. It
// asks SQS unless the URL itself was given. Errors are classified as those of
// Publisher.Publish are.
func QueueURL(ctx context.Context, client *sqs.Client, queue string) (string, error) {
	q, err := parseQueue(queue)
	if err != nil {
		return "", outbox.Refused(fmt.Errorf("sqsbroker: %w", err))
	}
	return q.lookUp(ctx, client)
}

func (q queueRef) lookUp(ctx context.Context, client *sqs.Client) (string, error) {
	if q.url != "" {
		return q.url, nil
	}
	in := &sqs.GetQueueUrlInput{QueueName: aws.String(q.name)}
	if q.account != "" {
		in.QueueOwnerAWSAccountId = aws.String(q.account)
	}
	out, err := client.GetQueueUrl(ctx, in, callOptions)
	if err != nil {
		return "", awsmsg.Classify(ctx, fmt.Errorf("sqsbroker: look up queue %q: %w", q.name, err))
	}
	return aws.ToString(out.QueueUrl), nil
}

// callOptions are those of every call. The SDK would fail a whole request for
// one body that arrived otherwise than it was sent; Send and decode compare for
// each message instead. awsbody says what it mends.
func callOptions(o *sqs.Options) {
	o.DisableMessageChecksumValidation = true
	o.HTTPClient = awsbody.Wrap(o.HTTPClient)
}

// maxResolved bounds the cache of queue URLs, for templates with many values.
const maxResolved = 10_000

// queues sends to queues and remembers their URLs, which a queue keeps when it
// is deleted and created again.
type queues struct {
	client *sqs.Client

	mu   sync.Mutex
	urls map[string]string // by name, URL or ARN
}

func newQueues(client *sqs.Client) *queues { return &queues{client: client, urls: map[string]string{}} }

// Resolve implements awsmsg.Broker: it returns the queue's URL.
func (q *queues) Resolve(ctx context.Context, queue string) (string, error) {
	q.mu.Lock()
	u, ok := q.urls[queue]
	q.mu.Unlock()
	if ok {
		return u, nil
	}
	u, err := QueueURL(ctx, q.client, queue)
	if err != nil {
		return "", err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.urls) >= maxResolved {
		clear(q.urls)
	}
	q.urls[queue] = u
	return u, nil
}
