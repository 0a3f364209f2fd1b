package sqsbroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/internal/awsmsg"
	"github.com/postrider/postrider/outbox"
)

// ConsumerConfig says what to consume, and how.
type ConsumerConfig struct {
	// Client is the caller's; required. A timeout of its HTTP client, if it has
	// one, must be longer than WaitTime.
	Client *sqs.Client
	// Queue is a name, URL or ARN; required.
	Queue string
	// Envelope says that the queue is subscribed to an SNS topic without raw
	// message delivery: then the body is not the payload but a JSON object of
	// SNS with the payload and the attributes in it, and a message whose body
	// is no such object cannot be decoded. It is not guessed, because whoever
	// can choose a payload could write such an object. Messages with a
	// postrider-id among their own attributes came raw and are taken as they
	// are, so raw delivery can be switched on while messages wait.
	Envelope bool
	// Handlers is the most messages that are handled at the same time; nothing
	// else is received. 0: 20.
	Handlers int
	// Pollers is the most requests for messages at the same time. 0: one for
	// every ten handlers.
	Pollers int
	// WaitTime is how long a request waits for messages, in whole seconds, at
	// most 20. 0: 20 s.
	WaitTime time.Duration
	// VisibilityTimeout is how long SQS hides a message after it was received
	// or extended, in whole seconds, at most 12 h. It is extended every third
	// of it while the handler runs (SQS ends that after 12 h in all), so it
	// only matters after a crash. 0: 30 s.
	VisibilityTimeout time.Duration
	// RetryInitial is when a message comes again after its handler failed for
	// the first time; each further time takes four times as long, up to
	// RetryMax. After a permanent error (outbox.Permanent, or a message that
	// cannot be decoded) it is always RetryInitial, so that the queue's
	// maxReceiveCount moves the message to the dead-letter queue soon. In whole
	// seconds, rounded up. 0: 1 s and 5 min. Negative RetryInitial: always what
	// is left of VisibilityTimeout.
	RetryInitial, RetryMax time.Duration
	// DeleteDelay is how long a handled message waits for others to be deleted
	// with it. 0: 20 ms.
	DeleteDelay time.Duration
	// StopTimeout is how long after the stop a deletion that fails is tried
	// again; what is handled later is tried once. Handlers are not limited by
	// it. 0: 30 s.
	StopTimeout time.Duration
	// Logger takes the errors of handlers and of SQS. nil: slog.Default().
	Logger *slog.Logger
}

const (
	maxVisibility = 12 * time.Hour
	retryFactor   = 4
	// requestTimeout bounds every request, beyond what it waits at SQS.
	requestTimeout = 10 * time.Second
)

// Consumer receives messages from an SQS queue. It implements inbox.Consumer.
type Consumer struct {
	cfg   ConsumerConfig
	queue queueRef
}

var _ inbox.Consumer = (*Consumer)(nil)

// NewConsumer reports all problems of the configuration together. It sends
// nothing.
func NewConsumer(cfg ConsumerConfig) (*Consumer, error) {
	var errs []error
	if cfg.Client == nil {
		errs = append(errs, errors.New("no client is given"))
	}
	queue, err := parseQueue(cfg.Queue)
	if err != nil {
		errs = append(errs, err)
	}
	count := func(name string, n *int, standard int) {
		if *n < 0 {
			errs = append(errs, fmt.Errorf("%s: %d is negative", name, *n))
		}
		if *n == 0 {
			*n = standard
		}
	}
	count("handlers", &cfg.Handlers, 20)
	count("pollers", &cfg.Pollers, (cfg.Handlers+MaxBatch-1)/MaxBatch)
	period := func(name string, d *time.Duration, standard, least, most time.Duration) {
		if *d == 0 {
			*d = standard
		}
		if *d < least || *d > most {
			errs = append(errs, fmt.Errorf("%s: %v is not between %v and %v", name, *d, least, most))
		}
	}
	period("wait time", &cfg.WaitTime, 20*time.Second, time.Second, 20*time.Second)
	period("visibility timeout", &cfg.VisibilityTimeout, 30*time.Second, time.Second, maxVisibility)
	period("retry max", &cfg.RetryMax, 5*time.Minute, time.Second, maxVisibility)
	period("delete delay", &cfg.DeleteDelay, 20*time.Millisecond, time.Microsecond, cfg.VisibilityTimeout)
	period("stop timeout", &cfg.StopTimeout, 30*time.Second, time.Microsecond, maxVisibility)
	if cfg.RetryInitial == 0 {
		cfg.RetryInitial = time.Second
	}
	for _, whole := range []time.Duration{cfg.WaitTime, cfg.VisibilityTimeout} {
		if whole%time.Second != 0 {
			errs = append(errs, fmt.Errorf("%v: SQS counts in whole seconds", whole))
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("sqsbroker: consumer: %w", err)
	}
	return &Consumer{cfg: cfg, queue: queue}, nil
}

// Consume implements inbox.Consumer. While SQS cannot be reached, or the queue
// does not exist, it logs and goes on trying.
//
// A message whose handler returns an error or panics, or that cannot be
// decoded, stays in the queue and comes again (see RetryInitial); the queue's
// own redrive policy moves it to the dead-letter queue. On FIFO queues the
// messages of a group are handled one after the other; those behind a failed
// one are given back unhandled.
//
// The stop aborts the requests for messages; what SQS had just sent in answer
// to one comes again after VisibilityTimeout. If handled messages could not be
// deleted by then the error says how many will come again.
func (c *Consumer) Consume(ctx context.Context, handle inbox.Handler) error {
	url, ok := c.lookUp(ctx)
	if !ok {
		return nil
	}
	return newSession(ctx, c, url, handle).run(ctx)
}

func (c *Consumer) lookUp(ctx context.Context) (string, bool) {
	for wait := newBackoff(); ; {
		limited, cancel := context.WithTimeout(ctx, requestTimeout)
		url, err := c.queue.lookUp(limited, c.cfg.Client)
		cancel()
		if err == nil {
			return url, true
		}
		if ctx.Err() != nil {
			return "", false
		}
		c.logError(ctx, "cannot look up the queue; trying again", err)
		if !wait.sleep(ctx) {
			return "", false
		}
	}
}

func (c *Consumer) logError(ctx context.Context, msg string, err error, attrs ...any) {
	attrs = append(attrs, "queue", c.queue.name, "class", outbox.ClassOf(err).String(), "alarm", outbox.IsAlarm(err), "error", err)
	c.cfg.Logger.ErrorContext(ctx, msg, attrs...)
}

// receive asks for at most n messages.
func (c *Consumer) receive(ctx context.Context, url string, n int) ([]types.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.WaitTime+requestTimeout)
	defer cancel()
	out, err := c.cfg.Client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl:              aws.String(url),
		MaxNumberOfMessages:   int32(n),
		WaitTimeSeconds:       seconds(c.cfg.WaitTime),
		VisibilityTimeout:     seconds(c.cfg.VisibilityTimeout),
		MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{
			types.MessageSystemAttributeNameApproximateReceiveCount,
			types.MessageSystemAttributeNameMessageGroupId,
		},
	}, callOptions)
	if err != nil {
		return nil, awsmsg.Classify(ctx, fmt.Errorf("sqsbroker: receive from queue %q: %w", c.queue.name, err))
	}
	return out.Messages, nil
}

// seconds rounds up, so that nothing becomes none.
func seconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

// retryDelay is when a message comes again after it was received count times.
func (c *Consumer) retryDelay(count int, permanent bool) time.Duration {
	delay := c.cfg.RetryInitial
	if permanent {
		return delay
	}
	for range count - 1 {
		if delay *= retryFactor; delay >= c.cfg.RetryMax {
			return c.cfg.RetryMax
		}
	}
	return delay
}
