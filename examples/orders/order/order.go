// Package order is the order service: it takes orders over HTTP and commits
// each of them together with the event that announces it. It never talks to a
// broker; a relay publishes what was committed.
package order

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/postrider/postrider/examples/orders/web"
	"github.com/postrider/postrider/outbox"
)

// Order is an order as the client sees it.
type Order struct {
	ID          string `json:"id"` // a version 7 UUID
	CustomerID  string `json:"customer_id"`
	AmountCents int64  `json:"amount_cents"`
	CreatedAt   string `json:"created_at"` // event.TimeLayout
}

// Config is what the service needs.
type Config struct {
	// DB holds the orders and the outbox: one transaction spans both.
	// Required; not closed by the service.
	DB *sql.DB
	// Inserter puts events into the outbox of that database. Required.
	Inserter outbox.Inserter[*sql.Tx]
	// Logger gets what clients must not see. Default: slog.Default.
	Logger *slog.Logger
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Committed, if set, is called right after an order has been committed.
	Committed func(Order)
}

// Service is the order service. It is safe for concurrent use.
type Service struct {
	db        *sql.DB
	outbox    *outbox.Writer[*sql.Tx]
	log       *slog.Logger
	now       func() time.Time
	committed func(Order)
}

// New returns the service, or everything that is wrong with the config.
func New(c Config) (*Service, error) {
	var errs []error
	if c.DB == nil {
		errs = append(errs, errors.New("order: Config.DB is nil"))
	}
	if c.Inserter == nil {
		errs = append(errs, errors.New("order: Config.Inserter is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s := &Service{db: c.DB, outbox: outbox.NewWriter(c.Inserter), log: c.Logger, now: c.Now, committed: c.Committed}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.committed == nil {
		s.committed = func(Order) {}
	}
	return s, nil
}

// Handler answers POST /orders, GET /orders/{id} and GET /healthz, and every
// mistake with problem JSON.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/orders", web.Methods{http.MethodPost: s.post})
	mux.Handle("/orders/{id}", web.Methods{http.MethodGet: s.get})
	mux.Handle("/healthz", web.Methods{http.MethodGet: s.health})
	mux.HandleFunc("/", web.NotFound)
	return mux
}

func (s *Service) post(w http.ResponseWriter, r *http.Request) {
	req, problem := readRequest(w, r)
	if problem != nil {
		problem.ServeHTTP(w, r)
		return
	}
	order, err := s.place(r.Context(), req)
	switch {
	case errors.Is(err, errKeyReused):
		(&web.Problem{
			Status: http.StatusUnprocessableEntity,
			Detail: "this " + keyHeader + " was used for another order: take a new key for a new order",
			Fields: []web.Field{{Name: keyHeader, Detail: "was used for another order"}},
		}).ServeHTTP(w, r)
	case err != nil:
		s.fail(w, r, "place an order", err)
	default:
		w.Header().Set("Location", "/orders/"+order.ID)
		web.WriteJSON(w, http.StatusCreated, order)
	}
}

func (s *Service) get(w http.ResponseWriter, r *http.Request) {
	order, err := s.find(r.Context(), r.PathValue("id"))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		(&web.Problem{Status: http.StatusNotFound, Detail: "there is no such order"}).ServeHTTP(w, r)
	case err != nil:
		s.fail(w, r, "find an order", err)
	default:
		web.WriteJSON(w, http.StatusOK, order)
	}
}

func (s *Service) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	if err := s.db.PingContext(ctx); err != nil {
		s.log.WarnContext(ctx, "health check failed", "error", err)
		(&web.Problem{Status: http.StatusServiceUnavailable, Detail: "the database does not answer"}).ServeHTTP(w, r)
		return
	}
	web.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// fail logs the error and tells the client no more than that it failed.
func (s *Service) fail(w http.ResponseWriter, r *http.Request, what string, err error) {
	if r.Context().Err() != nil {
		return // the client has gone; what it caused was rolled back
	}
	s.log.ErrorContext(r.Context(), "request failed", "what", what, "error", err)
	(&web.Problem{
		Status: http.StatusInternalServerError,
		Detail: "the order service could not reach or use its database; try again, with the same " + keyHeader + " if you sent one",
	}).ServeHTTP(w, r)
}
