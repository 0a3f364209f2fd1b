// Package orders tests the reference system: its parts in process and as
// processes of their own, on SQLite and on PostgreSQL.
package orders

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/database"
	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// onEach runs a test on each kind of database.
func onEach(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("SQLite", func(t *testing.T) {
		test(t, "sqlite:"+filepath.Join(t.TempDir(), "orders.db"))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		test(t, pgtest.Database(t))
	})
}

func openDatabase(t testing.TB, url string) *database.Database {
	t.Helper()
	where, err := config.ParseDatabase(url)
	if err != nil {
		t.Fatal(err)
	}
	db, err := database.Open(t.Context(), where, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// shop is a running order service that counts what it enqueues.
type shop struct {
	t   testing.TB
	url string
	db  *sql.DB
	// inserter is what the service enqueues through.
	inserter *spyInserter
	// logTables hold the outbox's messages, parkedTable those set aside.
	logTables   []string
	parkedTable string
	relayStore  func(testing.TB) relay.Store
}

func openShop(t testing.TB, url string) *shop {
	t.Helper()
	db := openDatabase(t, url)
	inserter := &spyInserter{Inserter: db.Inserter}
	service, err := order.New(order.Config{DB: db.DB, Inserter: inserter, Logger: quiet(t)})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, service)
	s.db, s.inserter, s.logTables, s.parkedTable = db.DB, inserter, []string{"postrider_log_0", "postrider_log_1", "postrider_log_2", "postrider_log_3"}, "postrider_parked"
	if strings.HasPrefix(url, "postgres") {
		s.logTables = []string{"postrider.log_0", "postrider.log_1", "postrider.log_2", "postrider.log_3"}
		s.parkedTable = "postrider.parked"
	}
	s.relayStore = func(t testing.TB) relay.Store {
		t.Helper()
		store, err := db.RelayStore()
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	return s
}

// serve runs the service until the test ends.
func serve(t testing.TB, service *order.Service) *shop {
	server := httptest.NewServer(service.Handler())
	t.Cleanup(server.Close)
	return &shop{t: t, url: server.URL}
}

// quiet is a logger whose lines only a failed test shows.
func quiet(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// spyInserter does what the real one does, and then what fail says.
type spyInserter struct {
	outbox.Inserter[*sql.Tx]
	fail func(ctx context.Context, tx *sql.Tx) error
}

func (s *spyInserter) Insert(ctx context.Context, tx *sql.Tx, msgs []outbox.Message) error {
	if err := s.Inserter.Insert(ctx, tx, msgs); err != nil {
		return err
	}
	if s.fail != nil {
		return s.fail(ctx, tx)
	}
	return nil
}

// answer is a response that was read.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request; headers are pairs.
func (s *shop) send(method, path, body string, headers ...string) answer {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

// post places an order.
func (s *shop) post(body string, headers ...string) answer {
	s.t.Helper()
	return s.send(http.MethodPost, "/orders", body, append(headers, "Content-Type", "application/json")...)
}

// problem is problem JSON as RFC 9457 has it, with our list of fields.
type problem struct {
	Type, Title, Detail string
	Status              int
	Errors              []struct{ Field, Detail string }
}

// problem reads the answer as problem JSON and checks its form.
func (a answer) problem(t testing.TB) problem {
	t.Helper()
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type %q", got)
	}
	var p problem
	decoder := json.NewDecoder(strings.NewReader(a.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		t.Fatalf("problem %s: %v", a.body, err)
	}
	if p.Status != a.status || p.Type != "about:blank" || p.Title != http.StatusText(a.status) || p.Detail == "" {
		t.Errorf("status %d has the problem %s", a.status, a.body)
	}
	return p
}

func (a answer) order(t testing.TB) order.Order {
	t.Helper()
	var o order.Order
	decoder := json.NewDecoder(bytes.NewReader([]byte(a.body)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&o); err != nil {
		t.Fatalf("status %d, body %s: %v", a.status, a.body, err)
	}
	return o
}

// stored is how many orders the database holds.
func (s *shop) stored() int {
	s.t.Helper()
	orders, err := order.List(s.t.Context(), s.db)
	if err != nil {
		s.t.Fatal(err)
	}
	return len(orders)
}
