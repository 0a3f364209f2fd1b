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
	"github.com/postrider/postrider/outbox"
)

// Up to 80 characters, .fifo included:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html
var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}(\.fifo)?$`)

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

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
		return "", classify(ctx, fmt.Errorf("sqsbroker: look up queue %q: %w", q.name, err))
	}
	return aws.ToString(out.QueueUrl), nil
}

// callOptions are those of every call. The SDK would fail a whole request for
// one body that arrived otherwise than it was sent; settle and decode compare
// for each message instead. awsbody says what it mends.
func callOptions(o *sqs.Options) {
	o.DisableMessageChecksumValidation = true
	o.HTTPClient = awsbody.Wrap(o.HTTPClient)
}

// maxResolved bounds the cache of queue URLs, for templates with many values.
const maxResolved = 10_000

// destinations expands the queue template for each message and remembers URLs,
// which a queue keeps when it is deleted and created again.
type destinations struct {
	client   *sqs.Client
	template string
	derived  bool // the template has placeholders

	mu   sync.Mutex
	urls map[string]string // by expanded template
}

func newDestinations(client *sqs.Client, template string) (*destinations, error) {
	d := &destinations{client: client, template: template, urls: map[string]string{}}
	for _, p := range placeholder.FindAllString(template, -1) {
		switch p {
		case "{topic}", "{key}", "{type}":
			d.derived = true
		default:
			return nil, fmt.Errorf("queue %q: %s is not known: use {topic}, {key} or {type}", template, p)
		}
	}
	example := strings.NewReplacer("{topic}", "x", "{key}", "x", "{type}", "x").Replace(template)
	if _, err := parseQueue(example); err != nil {
		return nil, err
	}
	return d, nil
}

// expand returns the message's queue as one would write it.
func (d *destinations) expand(m *outbox.Message) (string, error) {
	if !d.derived {
		return d.template, nil
	}
	var problem error
	name := placeholder.ReplaceAllStringFunc(d.template, func(p string) string {
		var value string
		switch p {
		case "{topic}":
			value = m.Topic
		case "{key}":
			value = m.Key
		case "{type}":
			value = m.Type
		}
		switch {
		case value == "":
			problem = fmt.Errorf("queue %q needs the message's %s, which is empty", d.template, strings.Trim(p, "{}"))
		case strings.ContainsFunc(value, notInName):
			problem = fmt.Errorf("queue %q: %q has characters that no queue name has", d.template, value)
		}
		return value
	})
	if problem != nil {
		return "", problem
	}
	_, err := parseQueue(name)
	return name, err
}

func notInName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
}

// resolve returns the URL of an expanded queue.
func (d *destinations) resolve(ctx context.Context, queue string) (string, error) {
	d.mu.Lock()
	u, ok := d.urls[queue]
	d.mu.Unlock()
	if ok {
		return u, nil
	}
	q, err := parseQueue(queue)
	if err != nil {
		return "", err
	}
	u, err = q.lookUp(ctx, d.client)
	if err != nil {
		return "", d.missing(err)
	}
	d.mu.Lock()
	if len(d.urls) >= maxResolved {
		clear(d.urls)
	}
	d.urls[queue] = u
	d.mu.Unlock()
	return u, nil
}

// missing turns the error about a queue that does not exist into the message's
// own fault where the queue's name came from the message.
func (d *destinations) missing(err error) error {
	if d.derived && isMissingQueue(err) {
		return outbox.Permanent(err)
	}
	return err
}
