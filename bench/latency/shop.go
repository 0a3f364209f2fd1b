package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/database"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// patience is how long to wait for the last orders.
const patience = time.Minute

// shop is the order service with a relay, and a note of when each order was
// committed and acknowledged.
type shop struct {
	db      *database.Database
	service http.Handler
	relay   *relay.Relay
	stop    context.CancelFunc
	stopped chan error

	mu           sync.Mutex
	committed    map[string]time.Time // by order
	acknowledged map[string]time.Time
}

func openShop(ctx context.Context, url string, emulator *awsemulator.Server) (*shop, error) {
	where, err := config.ParseDatabase(url)
	if err != nil {
		return nil, err
	}
	s := &shop{committed: map[string]time.Time{}, acknowledged: map[string]time.Time{}, stopped: make(chan error, 1)}
	if s.db, err = database.Open(ctx, where, ""); err != nil {
		return nil, err
	}
	if err := s.connect(ctx, emulator); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	running, stop := context.WithCancel(ctx)
	s.stop = stop
	go func() { s.stopped <- s.relay.Run(running) }()
	return s, nil
}

// connect makes the service and the relay.
func (s *shop) connect(ctx context.Context, emulator *awsemulator.Server) error {
	service, err := order.New(order.Config{DB: s.db.DB, Inserter: s.db.Inserter, Logger: slog.New(slog.DiscardHandler), Committed: func(o order.Order) {
		s.note(s.committed, o.ID)
	}})
	if err != nil {
		return err
	}
	s.service = service.Handler()
	client := sqs.NewFromConfig(emulator.Config())
	queue := fmt.Sprintf("latency-%d", time.Now().UnixNano())
	if err := cloud.EnsureQueue(ctx, client, queue); err != nil {
		return err
	}
	publisher, err := sqsbroker.NewPublisher(sqsbroker.PublisherConfig{Client: client, Queue: queue})
	if err != nil {
		return err
	}
	store, err := s.db.RelayStore()
	if err != nil {
		return err
	}
	s.relay, err = relay.New(relay.Config{Store: store, Routes: []relay.Route{{
		Name: "orders", Topics: []string{event.Topic}, Publisher: noting{publisher, s},
	}}})
	return err
}

func (s *shop) close() error {
	s.stop()
	return errors.Join(<-s.stopped, s.db.Close())
}

func (s *shop) note(in map[string]time.Time, order string) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	in[order] = now
}

// noting notes when a publish was acknowledged. The event's key is the order.
type noting struct {
	outbox.Publisher
	shop *shop
}

func (n noting) Publish(ctx context.Context, msgs []outbox.Message) []outbox.Result {
	results := n.Publisher.Publish(ctx, msgs)
	for i := range results {
		if results[i].Err == nil {
			n.shop.note(n.shop.acknowledged, msgs[i].Key)
		}
	}
	return results
}

// measure places orders at the rate and returns the latencies, in microseconds,
// of those after the warm-up.
func (s *shop) measure(ctx context.Context, o options) (*hdrhistogram.Histogram, error) {
	begin := time.Now()
	measured := begin.Add(o.warmUp)
	end := measured.Add(o.duration)
	placing, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	var clients sync.WaitGroup
	for i := 0; placing.Err() == nil; i++ {
		at := begin.Add(time.Duration(i) * time.Second / time.Duration(o.rate))
		if at.After(end) || until(placing, at) != nil {
			break
		}
		clients.Go(func() {
			if err := s.place(ctx, i); err != nil {
				failed(fmt.Errorf("%w (can the database take %d orders/s here? -rate sets another rate)", err, o.rate))
			}
		})
	}
	clients.Wait()
	if placing.Err() != nil {
		return nil, context.Cause(placing)
	}
	if err := s.awaitAll(ctx); err != nil {
		return nil, err
	}
	return s.latencies(measured)
}

func (s *shop) place(ctx context.Context, i int) error {
	body := fmt.Sprintf(`{"customerId":"c%d","amountCents":%d}`, i%100, i+1)
	request := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body)).WithContext(ctx)
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	s.service.ServeHTTP(answer, request)
	if answer.Code != http.StatusCreated {
		return fmt.Errorf("place an order: status %d: %s", answer.Code, strings.TrimSpace(answer.Body.String()))
	}
	return nil
}

func (s *shop) awaitAll(ctx context.Context) error {
	for end := time.Now().Add(patience); ; {
		s.mu.Lock()
		left := len(s.committed) - len(s.acknowledged)
		s.mu.Unlock()
		if left <= 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d orders were not acknowledged within %v", left, patience)
		}
		if err := until(ctx, time.Now().Add(10*time.Millisecond)); err != nil {
			return err
		}
	}
}

func (s *shop) latencies(since time.Time) (*hdrhistogram.Histogram, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := hdrhistogram.New(1, time.Hour.Microseconds(), 3)
	for id, committed := range s.committed {
		if committed.Before(since) {
			continue
		}
		// The relay may be quicker than the service hears of its own commit.
		took := max(s.acknowledged[id].Sub(committed), time.Microsecond)
		if err := h.RecordValue(took.Microseconds()); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func until(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
