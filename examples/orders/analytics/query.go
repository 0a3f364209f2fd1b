package analytics

import (
	"context"
	"database/sql"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// Sums are a number of orders and what they add up to.
type Sums struct {
	Orders int64 `json:"orders"`
	// RevenueCents is exact. Its JSON is a number of as many digits as it takes.
	RevenueCents *big.Int `json:"revenueCents"`
}

// Minute is what was ordered within a minute, by when the orders were placed.
type Minute struct {
	Minute time.Time `json:"minute"` // its beginning, UTC
	Sums
}

// Customer is what a customer has ordered.
type Customer struct {
	CustomerID string `json:"customerId"`
	Sums
}

const (
	selectMinutes = `SELECT minute, orders, cents_high, cents_low FROM analytics_minutes ORDER BY minute DESC LIMIT $1`
	// What is carried from the low part to the high one decides the order.
	selectCustomers = `SELECT customer_id, orders, cents_high, cents_low FROM analytics_customers
ORDER BY cents_high + cents_low / 4294967296 DESC, cents_low % 4294967296 DESC, customer_id LIMIT $1`
	selectTotal = `SELECT CAST(coalesce(sum(orders), 0) AS bigint), CAST(coalesce(sum(cents_high), 0) AS bigint),
	CAST(coalesce(sum(cents_low), 0) AS bigint) FROM analytics_minutes`
)

// Minutes returns the newest minutes that have orders, at most limit of them,
// oldest first.
func (s *Service) Minutes(ctx context.Context, limit int) ([]Minute, error) {
	minutes, err := query(ctx, s.db.Reader(), selectMinutes, limit, func(name string, sums Sums) (Minute, error) {
		t, err := time.Parse(minuteLayout, name)
		return Minute{t, sums}, err
	})
	if err != nil {
		return nil, fmt.Errorf("analytics: read the minutes: %w", err)
	}
	slices.Reverse(minutes)
	return minutes, nil
}

// Customers returns those with the most revenue, at most limit of them, most
// first.
func (s *Service) Customers(ctx context.Context, limit int) ([]Customer, error) {
	customers, err := query(ctx, s.db.Reader(), selectCustomers, limit, func(id string, sums Sums) (Customer, error) {
		return Customer{id, sums}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("analytics: read the customers: %w", err)
	}
	return customers, nil
}

// Total returns the sums of all orders.
func (s *Service) Total(ctx context.Context) (Sums, error) {
	var orders, high, low int64
	if err := s.db.Reader().QueryRowContext(ctx, selectTotal).Scan(&orders, &high, &low); err != nil {
		return Sums{}, fmt.Errorf("analytics: read the total: %w", err)
	}
	return Sums{orders, cents(high, low)}, nil
}

func query[T any](ctx context.Context, db *sql.DB, statement string, limit int, make func(string, Sums) (T, error)) ([]T, error) {
	rows, err := db.QueryContext(ctx, statement, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := []T{}
	for rows.Next() {
		var name string
		var orders, high, low int64
		if err := rows.Scan(&name, &orders, &high, &low); err != nil {
			return nil, err
		}
		row, err := make(name, Sums{orders, cents(high, low)})
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

// cents is high * 2^32 + low.
func cents(high, low int64) *big.Int {
	sum := new(big.Int).Lsh(big.NewInt(high), 32)
	return sum.Add(sum, big.NewInt(low))
}
