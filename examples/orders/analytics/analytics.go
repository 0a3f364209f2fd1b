// Package analytics is the service that counts orders and adds up revenue, per
// minute and per customer, in its own SQL database. The sums change in the
// transaction that records the message in the inbox, so each order is counted
// once, however often its event arrives.
package analytics

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/inboxdb"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
)

// DefaultQueue is the service's queue unless it is told another.
const DefaultQueue = "analytics"

// consumer is the service's name in its inbox.
const consumer = "analytics"

//go:embed migrations
var migrations embed.FS

// Open opens the service's database and creates what is missing in it. The
// options' migrations are the service's own.
func Open(ctx context.Context, where config.Database, o inboxdb.Options) (*inboxdb.DB, error) {
	o.Migrations = migrations
	return inboxdb.Open(ctx, where, o)
}

// Config is what the service needs.
type Config struct {
	// DB is a database that Open opened. Required; not closed by the service.
	DB *inboxdb.DB
	// Logger gets what clients must not see. Default: slog.Default.
	Logger *slog.Logger
	// Handled, if set, is called after an event has been dealt with; duplicate
	// means that it was counted before.
	Handled func(e event.OrderCreated, duplicate bool)
}

// Service is the analytics service. It is safe for concurrent use.
type Service struct {
	db      *inboxdb.DB
	log     *slog.Logger
	handled func(event.OrderCreated, bool)
}

// New returns the service.
func New(c Config) (*Service, error) {
	if c.DB == nil {
		return nil, errors.New("analytics: Config.DB is nil")
	}
	s := &Service{db: c.DB, log: c.Logger, handled: c.Handled}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.handled == nil {
		s.handled = func(event.OrderCreated, bool) {}
	}
	return s, nil
}

var _ inbox.Handler = (*Service)(nil).Handle

// Handle is the service's inbox.Handler.
func (s *Service) Handle(ctx context.Context, m outbox.Message) error {
	e, ok, err := event.Read(m)
	if err != nil {
		return fmt.Errorf("analytics: %w", err)
	}
	if !ok {
		s.log.DebugContext(ctx, "event of no concern", "type", m.Type, "message", m.ID)
		return nil
	}
	minute, err := minuteOf(e.CreatedAt)
	if err != nil {
		return outbox.Permanent(fmt.Errorf("analytics: order %s: %w", e.OrderID, err))
	}
	duplicate := true
	err = s.db.Once(consumer, func(ctx context.Context, tx inboxdb.Tx, _ outbox.Message) error {
		duplicate = false
		return count(ctx, tx, e, minute)
	})(ctx, m)
	if err != nil {
		return fmt.Errorf("analytics: order %s: %w", e.OrderID, err)
	}
	s.handled(e, duplicate)
	return nil
}

const (
	addToMinute = `INSERT INTO analytics_minutes AS old (minute, orders, cents_high, cents_low) VALUES ($1, 1, $2, $3)
ON CONFLICT (minute) DO UPDATE SET
	orders = old.orders + 1, cents_high = old.cents_high + excluded.cents_high, cents_low = old.cents_low + excluded.cents_low`
	addToCustomer = `INSERT INTO analytics_customers AS old (customer_id, orders, cents_high, cents_low) VALUES ($1, 1, $2, $3)
ON CONFLICT (customer_id) DO UPDATE SET
	orders = old.orders + 1, cents_high = old.cents_high + excluded.cents_high, cents_low = old.cents_low + excluded.cents_low`
)

// count adds the order. Every transaction changes a minute first and then a
// customer, so two of them never wait for each other.
func count(ctx context.Context, tx inboxdb.Tx, e event.OrderCreated, minute string) error {
	high, low := e.AmountCents>>32, e.AmountCents&0xffffffff
	if err := tx.Exec(ctx, addToMinute, minute, high, low); err != nil {
		return fmt.Errorf("count in minute %s: %w", minute, err)
	}
	if err := tx.Exec(ctx, addToCustomer, e.CustomerID, high, low); err != nil {
		return fmt.Errorf("count for the customer: %w", err)
	}
	return nil
}

// minuteLayout is how minutes are stored.
const minuteLayout = "2006-01-02T15:04Z"

// minuteOf is the minute in which an order was placed.
func minuteOf(createdAt string) (string, error) {
	t, err := time.Parse(time.RFC3339, createdAt)
	if err != nil {
		return "", err
	}
	return t.UTC().Format(minuteLayout), nil
}
