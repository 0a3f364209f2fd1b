package page

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// stage is a Source, and what else the page needs.
type stage struct {
	mu      sync.Mutex
	view    View
	hops    []Hop
	changed chan struct{}
	placed  []string
}

func newStage() *stage {
	s := &stage{changed: make(chan struct{})}
	s.view = View{Database: "SQLite", Orders: 1, Relay: Relay{PID: 7, Ready: true}}
	for _, name := range []string{"fulfilment", "search"} {
		s.view.Services = append(s.view.Services, Service{Name: name, Title: name, Queue: name, Store: "store", Unit: "units", One: "unit", Total: 1})
	}
	return s
}

func (s *stage) View() View { s.mu.Lock(); defer s.mu.Unlock(); return s.view }

func (s *stage) Hops(after int) ([]Hop, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hops[after:], len(s.hops)
}

func (s *stage) Changed() <-chan struct{} { s.mu.Lock(); defer s.mu.Unlock(); return s.changed }

func (s *stage) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stage) place(_ context.Context, n int, customer string, amountCents int64) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch customer {
	case "":
		return "", &Refusal{Detail: "customerId must not be <empty>"}
	case "broken":
		return "", errors.New("secret detail")
	}
	s.placed = append(s.placed, customer)
	return "id-" + customer, nil
}

// serve runs a page until the test ends.
func serve(t *testing.T, s *stage, experiments ...Experiment) *httptest.Server {
	t.Helper()
	p, err := New(Config{
		Source: s, Place: s.place, Experiments: experiments,
		Search: func(_ context.Context, query string) ([]Hit, int, error) {
			return []Hit{{ID: "0123456789abcdef", Customer: query, AmountCents: 1}}, 12, nil
		},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p.Handler())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return server
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	return do(t, http.MethodGet, url, nil, nil)
}

func do(t *testing.T, method, url string, form url.Values, header map[string]string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}
