package service

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
)

const (
	// firstWait is how long a message waits after what it needs was found away;
	// each further time it is twice as long, up to longestWait, and up to a half
	// less or more by chance.
	firstWait   = 250 * time.Millisecond
	longestWait = 5 * time.Second
	// patience is how long a message waits in all before it goes back to the
	// queue. SQS lets nobody hold one for more than 12 hours.
	patience = 6 * time.Hour
)

// patient handles a message again and again while what the service needs (its
// mail server, its database) is unavailable, until stop ends. Giving it back to
// the queue each time would spend one of the few receives after which a queue
// moves it to the dead letters, though nothing is wrong with it; and a service
// that holds as many messages as it can takes no more, which is what an outage
// calls for.
//
// A time-out may be the message's own fault: it goes back to the queue once
// others have got through while it waited.
func (s *Service) patient(stop context.Context) inbox.Handler {
	return func(ctx context.Context, m outbox.Message) error {
		err := s.once(ctx, m)
		if !unavailable(err) {
			return err
		}
		s.begin(ctx, err)
		defer s.end(ctx)
		end := time.Now().Add(patience)
		others := s.handled.Load()
		for wait := firstWait; time.Now().Before(end); wait = min(2*wait, longestWait) {
			pause := time.NewTimer(wait/2 + rand.N(wait))
			select {
			case <-pause.C:
			case <-stop.Done():
				pause.Stop()
				return err
			}
			gotThrough := s.handled.Load() > others
			if err = s.once(ctx, m); !unavailable(err) || outbox.IsTimeout(err) && gotThrough {
				return err
			}
		}
		return err
	}
}

func (s *Service) once(ctx context.Context, m outbox.Message) error {
	err := s.cfg.Handle(ctx, m)
	if err == nil {
		s.handled.Add(1)
	}
	return err
}

func unavailable(err error) bool {
	return err != nil && outbox.ClassOf(err) == outbox.ClassUnavailable
}

// outage is the time in which at least one message waits.
type outage struct {
	mu      sync.Mutex
	waiting int
	since   time.Time
}

// Waiting is how many messages wait for what the service needs.
func (s *Service) Waiting() int {
	s.outage.mu.Lock()
	defer s.outage.mu.Unlock()
	return s.outage.waiting
}

func (s *Service) begin(ctx context.Context, err error) {
	s.outage.mu.Lock()
	defer s.outage.mu.Unlock()
	if s.outage.waiting++; s.outage.waiting > 1 {
		return
	}
	s.outage.since = time.Now()
	s.cfg.Logger.WarnContext(ctx, "what the service needs is away; its messages wait",
		"service", s.cfg.Name, "alarm", outbox.IsAlarm(err), "error", err)
}

func (s *Service) end(ctx context.Context) {
	s.outage.mu.Lock()
	defer s.outage.mu.Unlock()
	if s.outage.waiting--; s.outage.waiting == 0 {
		s.cfg.Logger.InfoContext(ctx, "no message waits any more",
			"service", s.cfg.Name, "after", time.Since(s.outage.since).Round(time.Millisecond))
	}
}
