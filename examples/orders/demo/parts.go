package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/examples/orders/analytics"
	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/fulfilment"
	"github.com/postrider/postrider/examples/orders/search"
)

// parts are what differs between the whole shop and the plain one.
type parts struct {
	reactions []*reaction
	// destination is where the relay sends: a topic's ARN or a queue's name.
	destination string
	// poison sends a message that nobody can read to where the relay sends.
	poison    func(context.Context) error
	mail      *mail              // nil: plain
	analytics *analytics.Service // nil: plain
	search    *search.Service    // nil: plain
	// away: the broker is cut off.
	away atomic.Bool
	// hushed: an experiment is running, and what goes wrong is no news.
	hushed atomic.Bool
	log    *slog.Logger // of the services
}

func (p *parts) make(ctx context.Context, s *shop) error {
	p.log = slog.New(hush{s.Logger.Handler(), &p.hushed})
	add := func(r *reaction, err error) error {
		if err == nil {
			p.reactions = append(p.reactions, r)
		}
		return err
	}
	if err := add(newFulfilment(ctx, s.peers, p.log)); err != nil {
		return err
	}
	if s.Plain {
		p.plain(s.peers)
		return nil
	}
	var err error
	if p.mail, err = newMail(s.peers.folder); err != nil {
		return err
	}
	if err := add(newNotification(ctx, s.peers.folder, p.mail, p.log)); err != nil {
		return err
	}
	r, analytics, err := newAnalytics(ctx, s.peers.folder, p.log)
	if err := add(r, err); err != nil {
		return err
	}
	p.analytics = analytics
	r, search, err := newSearch(s.peers.folder, p.log)
	if err := add(r, err); err != nil {
		return err
	}
	p.search = search
	return p.fanOut(ctx, s.peers)
}

// fanOut lets the relay publish to a topic that all queues are subscribed to.
func (p *parts) fanOut(ctx context.Context, peers *peers) (err error) {
	var queues []string
	for _, r := range p.reactions {
		queues = append(queues, r.queue)
	}
	topics := sns.NewFromConfig(peers.aws.Config())
	if p.destination, err = cloud.EnsureFanOut(ctx, topics, peers.queues, event.Topic, queues...); err != nil {
		return err
	}
	p.poison = func(ctx context.Context) error {
		if _, err := topics.Publish(ctx, &sns.PublishInput{TopicArn: &p.destination, Message: aws.String(poison)}); err != nil {
			return fmt.Errorf("publish to topic %s: %w", p.destination, err)
		}
		return nil
	}
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
	say("  relay         topic %s → %s", event.Topic, p.destination)
	for _, r := range p.reactions {
		say("  %-13s SQS queue %s → %s", r.name, r.queue, r.store)
	}
}

// close closes what the services have, which have stopped.
func (p *parts) close() error {
	err := closeAll(p.reactions)
	if p.mail != nil {
		err = errors.Join(err, p.mail.close())
	}
	return err
}
