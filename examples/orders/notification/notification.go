// Package notification is the service that mails each customer that an order
// was taken. It knows the order's event and nothing of the order service's
// database.
//
// # Once, but for one window
//
// A mail server's "accepted" and a database's commit cannot be one step, so
// something has to come first. This service sends, and then records: if it dies
// after the mail server has accepted a mail and before the record of that has
// committed, or if the server's answer is lost, the mail is sent again. The
// other order would lose mails instead, silently. Both copies have the same
// Message-ID, made from the order's id, by which mail programs and servers that
// look for doubles find them.
//
// Everything else is covered by the inbox row: a message that is delivered twice
// sends one mail. The row is written first, in a transaction that is open while
// the mail is handed over and commits once the server has accepted it. That
// makes the row a claim that needs no time-out: a copy that another process
// handles at the same time waits for it, and a process that dies gives it up at
// once. What the open transaction costs is bounded. Connecting, TLS and
// logging in, which take longest and fail most, happen before it; the hand-over
// has a time-out; and it locks nothing but that one row in a database that
// nobody else uses. With SQLite, which has one writer at a time, mails go out
// one after the other; with PostgreSQL, as many at once as messages are handled.
package notification

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/mail"

	"github.com/google/uuid"

	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/inboxdb"
	"github.com/postrider/postrider/outbox"
)

// Names that the service goes by unless it is told others.
const (
	DefaultQueue = "notifications"
	DefaultFrom  = "The shop <orders@shop.example>"
)

// consumer is the service's name in its inbox.
const consumer = "notification"

// Config is what the service needs.
type Config struct {
	// DB is the service's own database. Required; not closed by the service.
	DB *inboxdb.DB
	// Server takes the mails. Its Addr is required.
	Server Server
	// From is the sender. Default: DefaultFrom.
	From mail.Address
	// Domain is where customers have their addresses: c1's is c1@Domain. In
	// ASCII. Default: DefaultDomain.
	Domain string
	// Logger gets events of no concern. Default: slog.Default.
	Logger *slog.Logger
	// Handled, if set, is called after an event has been dealt with; duplicate
	// means that its mail was sent before.
	Handled func(e event.OrderCreated, duplicate bool)
}

// Service is the notification service. It is safe for concurrent use.
type Service struct {
	db      *inboxdb.DB
	mailer  *mailer
	from    mail.Address
	domain  string
	log     *slog.Logger
	handled func(event.OrderCreated, bool)
}

// New returns the service, or everything that is wrong with the config. It
// connects to nothing.
func New(c Config) (*Service, error) {
	var errs []error
	if c.DB == nil {
		errs = append(errs, errors.New("notification: Config.DB is nil"))
	}
	mailer, err := newMailer(c.Server)
	if err != nil {
		errs = append(errs, err)
	}
	if c.From.Address == "" {
		from, err := mail.ParseAddress(DefaultFrom)
		if err != nil {
			panic(err) // it is a constant
		}
		c.From = *from
	}
	if err := checkAddress(c.From.Address); err != nil {
		errs = append(errs, fmt.Errorf("notification: the sender: %w", err))
	}
	if c.Domain == "" {
		c.Domain = DefaultDomain
	}
	if err := checkAddress(addressAt("c1", c.Domain)); err != nil {
		errs = append(errs, fmt.Errorf("notification: the customers' domain %q: %w", c.Domain, err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s := &Service{db: c.DB, mailer: mailer, from: c.From, domain: c.Domain, log: c.Logger, handled: c.Handled}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.handled == nil {
		s.handled = func(event.OrderCreated, bool) {}
	}
	return s, nil
}

// Handle is the service's inbox.Handler. A mail server that cannot be reached
// or that refuses everybody is unavailable; what it refuses for this time (4xx)
// stays in the queue; what it refuses for good (5xx) is permanent and ends in
// the dead-letter queue.
func (s *Service) Handle(ctx context.Context, m outbox.Message) error {
	e, ok, err := event.Read(m)
	if err != nil {
		return fmt.Errorf("notification: %w", err)
	}
	if !ok {
		s.log.DebugContext(ctx, "event of no concern", "type", m.Type, "message", m.ID)
		return nil
	}
	duplicate, err := s.notify(ctx, e)
	if err != nil {
		return fmt.Errorf("notification: order %s: %w", e.OrderID, err)
	}
	s.handled(e, duplicate)
	return nil
}

// notify sends the order's mail unless it was sent before. The inbox's row is
// the order's and not the message's, so an order that was announced twice, in
// two messages, is mailed once too.
func (s *Service) notify(ctx context.Context, e event.OrderCreated) (duplicate bool, err error) {
	id, err := uuid.Parse(e.OrderID)
	if err != nil {
		return false, outbox.Permanent(err)
	}
	// Who has sent the mail needs no mail server.
	if seen, err := s.db.Seen(ctx, consumer, id); err != nil || seen {
		return seen, err
	}
	letter, err := s.compose(e)
	if err != nil {
		return false, outbox.Permanent(err)
	}
	talk, err := s.mailer.connect(ctx)
	if err != nil {
		return false, err
	}
	defer talk.close()
	duplicate = true
	err = s.db.Once(consumer, func(ctx context.Context, _ inboxdb.Tx, _ outbox.Message) error {
		duplicate = false
		return talk.send(ctx, letter)
	})(ctx, outbox.Message{ID: id})
	return duplicate, err
}
