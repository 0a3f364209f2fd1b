package demo

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/fulfilment"
	"github.com/postrider/postrider/examples/orders/page"
)

// parts are what differs between the whole shop and the plain one.
type parts struct {
	reactions []*reaction
	// destination is where the relay sends: a topic's ARN or a queue's name.
	destination string
	// poison sends a message that nobody can read to where the relay sends.
	poison func(context.Context) error
	// search finds orders. nil: nobody does.
	search func(ctx context.Context, query string) ([]page.Hit, error)
	// away: the broker is cut off.
	away atomic.Bool
}

func (p *parts) make(ctx context.Context, s *shop) error {
	fulfilment, err := newFulfilment(ctx, s.peers, s.Logger)
	if err != nil {
		return err
	}
	p.reactions = append(p.reactions, fulfilment)
	p.plain(s.peers)
	return nil
}

// plain lets the relay send to fulfilment's queue.
func (p *parts) plain(peers *peers) {
	p.destination = fulfilment.DefaultQueue
	p.poison = func(ctx context.Context) error {
		url, err := peers.queues.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &p.destination})
		if err == nil {
			_, err = peers.queues.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url.QueueUrl, MessageBody: aws.String(poison)})
		}
		if err != nil {
			return fmt.Errorf("send a message to queue %q: %w", p.destination, err)
		}
		return nil
	}
}

// poison is no order.
const poison = `{"orderId": "none", "customerId`

func (p *parts) introduce(say func(format string, args ...any)) {
	say("  relay       topic %s → %s", event.Topic, p.destination)
	for _, r := range p.reactions {
		say("  %-11s SQS queue %s → %s", r.name, r.queue, r.store)
	}
}

func (p *parts) close() error { return closeAll(p.reactions) }
