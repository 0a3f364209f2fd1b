package search

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/search"
	"github.com/blevesearch/bleve/v2/search/query"
	"github.com/google/uuid"
)

// Order is an order that was found.
type Order struct {
	OrderID     string `json:"orderId"`
	CustomerID  string `json:"customerId"` // at most MaxShown characters of it
	AmountCents int64  `json:"amountCents"`
	CreatedAt   string `json:"createdAt"` // event.TimeLayout
}

// Result is what a search found.
type Result struct {
	// Total is how many orders match.
	Total uint64 `json:"total"`
	// Orders are the best of them, and of equally good ones the newest.
	Orders []Order `json:"orders"`
}

// MaxShown is how many characters of a customer's id a result shows.
const MaxShown = 1000

// searchTimeout bounds a search.
const searchTimeout = 5 * time.Second

// Search finds orders by their id, by the customer's id (as a whole, or all of
// its words that are given, in any order and case), and by the amount (4999, or
// 49.99), and returns at most limit of them. There is no query language: every
// text can be searched for, and is searched for as it is.
func (s *Service) Search(ctx context.Context, text string, limit int) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	request := bleve.NewSearchRequestOptions(newQuery(text), limit, 0, false)
	request.Fields = []string{fieldCustomer, fieldAmount, fieldCreatedAt}
	request.SortBy([]string{"-_score", "-" + fieldCreatedAt, "_id"})
	found, err := s.index.SearchInContext(ctx, request)
	if err != nil {
		return Result{}, fmt.Errorf("search: %w", err)
	}
	result := Result{Total: found.Total, Orders: []Order{}}
	for _, hit := range found.Hits {
		order, err := newOrder(hit)
		if err != nil {
			return Result{}, err
		}
		result.Orders = append(result.Orders, order)
	}
	return result, nil
}

// Count is how many orders the index has.
func (s *Service) Count() (uint64, error) {
	n, err := s.index.DocCount()
	if err != nil {
		return 0, fmt.Errorf("search: count the orders: %w", err)
	}
	return n, nil
}

// How much better a match is than one by words.
const (
	boostID       = 100
	boostCustomer = 10
	boostAmount   = 5
)

func newQuery(text string) query.Query {
	trimmed := strings.TrimSpace(text)
	either := bleve.NewDisjunctionQuery()
	exact := func(field, term string, boost float64) {
		q := bleve.NewTermQuery(term)
		q.SetField(field)
		q.SetBoost(boost)
		either.AddQuery(q)
	}
	if id, err := uuid.Parse(trimmed); err == nil {
		exact(fieldOrderID, id.String(), boostID)
	}
	exact(fieldCustomer, text, boostCustomer)
	if trimmed != text {
		exact(fieldCustomer, trimmed, boostCustomer)
	}
	if cents, ok := parseAmount(trimmed); ok {
		exact(fieldAmount, strconv.FormatInt(cents, 10), boostAmount)
	}
	byWords := bleve.NewMatchQuery(trimmed)
	byWords.SetField(fieldWords)
	byWords.SetOperator(query.MatchQueryOperatorAnd)
	either.AddQuery(byWords)
	return either
}

// parseAmount reads cents (4999), or an amount with two digits after the point
// (49.99).
func parseAmount(text string) (cents int64, ok bool) {
	if whole, fraction, found := strings.Cut(text, "."); found {
		if len(fraction) != 2 || whole == "" {
			return 0, false
		}
		text = whole + fraction
	}
	n, err := strconv.ParseUint(text, 10, 63)
	return int64(n), err == nil
}

func newOrder(hit *search.DocumentMatch) (Order, error) {
	field := func(name string) string {
		text, _ := hit.Fields[name].(string)
		return text
	}
	amount, err := strconv.ParseInt(field(fieldAmount), 10, 64)
	if err != nil {
		return Order{}, fmt.Errorf("search: the index's amount of order %s: %w", hit.ID, err)
	}
	customer := field(fieldCustomer)
	if runes := []rune(customer); len(runes) > MaxShown {
		customer = string(runes[:MaxShown-1]) + "…"
	}
	return Order{OrderID: hit.ID, CustomerID: customer, AmountCents: amount, CreatedAt: field(fieldCreatedAt)}, nil
}
