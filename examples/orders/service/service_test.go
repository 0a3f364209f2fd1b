package service

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
)

// queue hands each message out once, all at the same time, as a broker's
// consumer does: handlers are not cancelled by the stop.
type queue struct {
	messages []outbox.Message
	mu       sync.Mutex
	results  map[uuid.UUID]error
}

func newQueue(n int) *queue {
	q := &queue{results: map[uuid.UUID]error{}}
	for range n {
		q.messages = append(q.messages, outbox.Message{ID: uuid.New()})
	}
	return q
}

func (q *queue) Consume(ctx context.Context, handle inbox.Handler) error {
	var handlers sync.WaitGroup
	for _, m := range q.messages {
		handlers.Go(func() {
			err := handle(context.WithoutCancel(ctx), m)
			q.mu.Lock()
			defer q.mu.Unlock()
			q.results[m.ID] = err
		})
	}
	<-ctx.Done()
	handlers.Wait()
	return nil
}

func (q *queue) result(i int) (error, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	err, done := q.results[q.messages[i].ID]
	return err, done
}

func newService(t testing.TB, q inbox.Consumer, handle inbox.Handler) *Service {
	t.Helper()
	s, err := New(Config{Name: "test", Consumer: q, Handle: handle, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs the service until stop is called, which returns what Run did.
func run(t testing.TB, s *Service) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() error { cancel(); return <-done }
}

func TestWaitsForWhatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		back := begin.Add(time.Hour)
		tries := 0
		q := newQueue(1)
		s := newService(t, q, func(context.Context, outbox.Message) error {
			tries++
			if time.Now().Before(back) {
				return outbox.Unavailable(errors.New("away"))
			}
			return nil
		})
		stop := run(t, s)
		time.Sleep(time.Hour - time.Second)
		if _, done := q.result(0); done || s.Waiting() != 1 {
			t.Errorf("before it is back: done %v, %d waiting", done, s.Waiting())
		}
		time.Sleep(time.Second + 2*longestWait)
		if err, done := q.result(0); err != nil || !done || s.Waiting() != 0 {
			t.Errorf("once it is back: done %v, %v, %d waiting", done, err, s.Waiting())
		}
		if most := int(time.Hour/(longestWait/2)) + 10; tries < 100 || tries > most {
			t.Errorf("%d tries", tries)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestStopEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(20)
		s := newService(t, q, func(context.Context, outbox.Message) error { return outbox.Refused(errors.New("away")) })
		stop := run(t, s)
		time.Sleep(time.Minute)
		synctest.Wait()
		stopped := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if time.Since(stopped) != 0 {
			t.Errorf("took %v", time.Since(stopped))
		}
		for i := range q.messages {
			if err, done := q.result(i); !done || err == nil {
				t.Errorf("message %d: %v, %v", i, err, done)
			}
		}
	})
}

func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1)
		stop := run(t, newService(t, q, func(context.Context, outbox.Message) error { return outbox.Unavailable(errors.New("away")) }))
		defer stop() //nolint:errcheck // it is nil
		time.Sleep(patience + 2*longestWait)
		if err, done := q.result(0); !done || err == nil {
			t.Errorf("done %v, %v", done, err)
		}
	})
}

// What is wrong with one message goes back at once.
func TestOtherErrorsGoBackAtOnce(t *testing.T) {
	for _, err := range []error{errors.New("this time"), outbox.Permanent(errors.New("never")), outbox.Retryable(errors.New("later"))} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(1)
			stop := run(t, newService(t, q, func(context.Context, outbox.Message) error { return err }))
			defer stop() //nolint:errcheck // it is nil
			synctest.Wait()
			if got, done := q.result(0); !done || !errors.Is(got, err) {
				t.Errorf("done %v, %v", done, got)
			}
		})
	}
}

// A time-out is an outage only while nobody gets through.
func TestTimeOuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		q := newQueue(2)
		slow := q.messages[0].ID
		var back atomic.Bool
		s := newService(t, q, func(_ context.Context, m outbox.Message) error {
			if !back.Load() || m.ID == slow {
				return outbox.TimedOut(errors.New("no answer"))
			}
			return nil
		})
		stop := run(t, s)
		defer stop() //nolint:errcheck // it is nil
		time.Sleep(time.Minute)
		if s.Waiting() != 2 {
			t.Errorf("%d wait", s.Waiting())
		}
		back.Store(true)
		time.Sleep(time.Minute)
		if err, done := q.result(1); !done || err != nil {
			t.Errorf("the other: %v, %v", done, err)
		}
		if err, done := q.result(0); !done || err == nil || time.Since(begin) > 3*time.Minute {
			t.Errorf("the slow one: %v, %v", done, err)
		}
	})
}

func TestHealth(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String()
	var broken error
	s, err := New(Config{
		Name: "test", Consumer: newQueue(0), Handle: func(context.Context, outbox.Message) error { return nil }, Listener: listener,
		API:    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }),
		Check:  func(context.Context) error { return broken },
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	get := func(path string, status int, want string) {
		t.Helper()
		r, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		if r.StatusCode != status || want != "" && body["status"] != want || strings.Contains(r.Header.Get("Content-Type"), "problem") != (status == 503) {
			t.Errorf("%s: %d, %v", path, r.StatusCode, body)
		}
	}
	get("/healthz", 200, "ok")
	s.begin(t.Context(), errors.New("away"))
	get("/healthz", 200, "waiting")
	s.end(t.Context())
	broken = outbox.Unavailable(errors.New("the database is away"))
	get("/healthz", 200, "waiting")
	broken = errors.New("secret detail")
	get("/healthz", 503, "")
	get("/other", http.StatusTeapot, "")
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := http.Get(url + "/healthz"); err == nil {
		t.Error("answered after the stop")
	}
	recorder := httptest.NewRecorder()
	s.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/healthz", nil))
	if recorder.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", recorder.Code)
	}
}

// Either part's end is the service's.
func TestPartsEndTogether(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newService(t, newQueue(0), func(context.Context, outbox.Message) error { return nil })
	s.cfg.Listener = listener
	_ = listener.Close()
	if err := s.Run(t.Context()); err == nil {
		t.Error("no error of HTTP")
	}
	listener, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = newService(t, failing{}, func(context.Context, outbox.Message) error { return nil })
	s.cfg.Listener = listener
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "test: no more") {
		t.Errorf("error %v", err)
	}
}

type failing struct{}

func (failing) Consume(context.Context, inbox.Handler) error { return errors.New("no more") }

func TestConfigReportsEverything(t *testing.T) {
	_, err := New(Config{})
	for _, want := range []string{"Name", "Consumer", "Handle"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v says nothing of %s", err, want)
		}
	}
}
