// Package service is what the shop's services that react to orders share: they
// take messages from a queue of their own, hold them while what they need is
// away, tell how they are, and stop without losing anything. What a service
// does with an order is its own package's business.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/examples/orders/web"
	"github.com/postrider/postrider/inbox"
)

// Config says what a service is made of.
type Config struct {
	// Name is what the log calls it. Required.
	Name string
	// Consumer is where its messages come from. Required.
	Consumer inbox.Consumer
	// Handle deals with one of them. Required.
	Handle inbox.Handler
	// Listener is where GET /healthz and the API are answered; Run closes it.
	// nil: nowhere.
	Listener net.Listener
	// API answers every path but /healthz. nil: there is none.
	API http.Handler
	// Check reports why the service's own data cannot be used, for /healthz. An
	// error of class unavailable is one that a restart does not mend. nil: it
	// always can.
	Check func(context.Context) error
	// Logger gets starts, stops and outages. Default: slog.Default.
	Logger *slog.Logger
}

// Service is a service that is ready to run. Its methods but Run are safe for
// concurrent use.
type Service struct {
	cfg     Config
	handled atomic.Int64
	outage  outage
}

// New returns the service, or everything that is wrong with the config. It
// starts nothing.
func New(c Config) (*Service, error) {
	var errs []error
	if c.Name == "" {
		errs = append(errs, errors.New("service: Config.Name is empty"))
	}
	if c.Consumer == nil {
		errs = append(errs, errors.New("service: Config.Consumer is nil"))
	}
	if c.Handle == nil {
		errs = append(errs, errors.New("service: Config.Handle is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.API == nil {
		c.API = http.HandlerFunc(web.NotFound)
	}
	if c.Check == nil {
		c.Check = func(context.Context) error { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Service{cfg: c}, nil
}

// Run handles messages and answers over HTTP until ctx ends. Then it takes
// nothing new, finishes what it has, and returns nil. HTTP is answered until
// the last message is finished. Call it once.
func (s *Service) Run(ctx context.Context) error {
	if s.cfg.Listener == nil {
		return s.consume(ctx)
	}
	consuming, stopConsuming := context.WithCancel(ctx)
	defer stopConsuming()
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	var consumed, served error
	var parts sync.WaitGroup
	parts.Go(func() {
		defer stopServing()
		consumed = s.consume(consuming)
	})
	parts.Go(func() {
		defer stopConsuming()
		served = web.Serve(serving, s.cfg.Listener, s.Handler(), s.cfg.Logger)
	})
	parts.Wait()
	return errors.Join(consumed, served)
}

func (s *Service) consume(ctx context.Context) error {
	if err := s.cfg.Consumer.Consume(ctx, s.patient(ctx)); err != nil {
		return fmt.Errorf("%s: %w", s.cfg.Name, err)
	}
	return nil
}

// healthTimeout bounds Check.
const healthTimeout = 2 * time.Second

// Handler answers GET /healthz and the API.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/healthz", web.Methods{http.MethodGet: s.health})
	mux.Handle("/", s.cfg.API)
	return mux
}

// health is 503 only for what a restart may mend. While what the service needs
// is away it is well, and waits: a restart would only hand its messages out
// once more.
func (s *Service) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	err := s.cfg.Check(ctx)
	if err != nil && !unavailable(err) {
		s.cfg.Logger.WarnContext(ctx, "health check failed", "service", s.cfg.Name, "error", err)
		(&web.Problem{Status: http.StatusServiceUnavailable, Detail: "the service cannot use its own data"}).ServeHTTP(w, r)
		return
	}
	status := "ok"
	if err != nil || s.Waiting() > 0 {
		status = "waiting"
	}
	web.WriteJSON(w, http.StatusOK, map[string]string{"status": status})
}
