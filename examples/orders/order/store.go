package order

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/examples/orders/event"
)

// How long the database may take, so that a client gets an answer before its
// own patience ends.
const (
	storeTimeout  = 10 * time.Second
	healthTimeout = 2 * time.Second
)

// errKeyReused means that an idempotency key came back with another request.
var errKeyReused = errors.New("order: the idempotency key was used for another order")

// The statements are the same on PostgreSQL and SQLite.
const (
	// insertOrder writes nothing if the key was used. On PostgreSQL it waits for
	// a transaction that is using the same key just now; SQLite has one writer.
	insertOrder = `INSERT INTO orders (id, customer_id, amount_cents, created_at, idempotency_key)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT (idempotency_key) DO NOTHING`
	selectByID  = `SELECT id, customer_id, amount_cents, created_at FROM orders WHERE id = $1`
	selectByKey = `SELECT id, customer_id, amount_cents, created_at FROM orders WHERE idempotency_key = $1`
)

// place commits the order and its event together, or neither. A key that was
// used before yields that order, if it is what the request asks for, and
// writes nothing.
func (s *Service) place(ctx context.Context, req request) (Order, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	id, err := uuid.NewV7()
	if err != nil {
		return Order{}, fmt.Errorf("order: make an id: %w", err)
	}
	order := Order{
		ID:          id.String(),
		CustomerID:  req.customerID,
		AmountCents: req.amountCents,
		CreatedAt:   s.now().UTC().Format(event.TimeLayout),
	}
	written, err := s.insert(ctx, order, req.key)
	if err != nil {
		return Order{}, err
	}
	if written {
		s.committed(order)
		return order, nil
	}
	earlier, err := scan(s.db.QueryRowContext(ctx, selectByKey, req.key))
	if err != nil {
		return Order{}, fmt.Errorf("order: read the order of an idempotency key: %w", err)
	}
	// An order holds all that a request says, so it is its own fingerprint.
	if earlier.CustomerID != req.customerID || earlier.AmountCents != req.amountCents {
		return Order{}, errKeyReused
	}
	return earlier, nil
}

// insert is the transaction that this whole example is about. It reports false
// if the key was used before; then nothing is written.
func (s *Service) insert(ctx context.Context, order Order, key string) (written bool, err error) {
	message, err := event.OrderCreated{
		OrderID:     order.ID,
		CustomerID:  order.CustomerID,
		AmountCents: order.AmountCents,
		CreatedAt:   order.CreatedAt,
	}.Message()
	if err != nil {
		return false, err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("order: begin: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing; before one there is an error already

	result, err := tx.ExecContext(ctx, insertOrder, order.ID, order.CustomerID, order.AmountCents, order.CreatedAt,
		sql.NullString{String: key, Valid: key != ""})
	if err != nil {
		return false, fmt.Errorf("order: insert: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return false, err
	}
	if err := s.outbox.Enqueue(ctx, tx, message); err != nil {
		return false, err
	}
	if err := tx.Commit(); err != nil {
		return false, fmt.Errorf("order: commit: %w", err)
	}
	return true, nil
}

// find reads one order; sql.ErrNoRows if there is none.
func (s *Service) find(ctx context.Context, id string) (Order, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	parsed, err := uuid.Parse(id)
	if err != nil {
		return Order{}, sql.ErrNoRows // what is not an id names no order
	}
	return scan(s.db.QueryRowContext(ctx, selectByID, parsed.String()))
}

// List returns all orders, oldest first. It is meant for small shops, such as
// the demo's.
func List(ctx context.Context, db *sql.DB) ([]Order, error) {
	rows, err := db.QueryContext(ctx, `SELECT id, customer_id, amount_cents, created_at FROM orders ORDER BY created_at, id`)
	if err != nil {
		return nil, fmt.Errorf("order: list: %w", err)
	}
	defer rows.Close()
	var orders []Order
	for rows.Next() {
		order, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("order: list: %w", err)
		}
		orders = append(orders, order)
	}
	return orders, rows.Err()
}

func scan(row interface{ Scan(...any) error }) (Order, error) {
	var order Order
	err := row.Scan(&order.ID, &order.CustomerID, &order.AmountCents, (*instant)(&order.CreatedAt))
	return order, err
}

// instant scans a time in event.TimeLayout from either database: PostgreSQL
// yields a time, SQLite the text that was stored.
type instant string

// Scan implements sql.Scanner.
func (i *instant) Scan(value any) error {
	switch v := value.(type) {
	case time.Time:
		*i = instant(v.UTC().Format(event.TimeLayout))
	case string:
		*i = instant(v)
	default:
		return fmt.Errorf("a time cannot be read from %T", value)
	}
	return nil
}
