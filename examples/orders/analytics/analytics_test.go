package analytics

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/inboxdb"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
)

// onEach runs a test on each kind of database, with a function that opens the
// service, as often as it is called.
func onEach(t *testing.T, test func(t *testing.T, open func() *Service)) {
	for name, url := range map[string]func(t *testing.T) string{
		"SQLite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "analytics.db") },
		"PostgreSQL": func(t *testing.T) string { return pgtest.Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			where, err := config.ParseDatabase(url(t))
			if err != nil {
				t.Fatal(err)
			}
			test(t, func() *Service {
				db, err := Open(t.Context(), where, inboxdb.Options{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := db.Close(); err != nil {
						t.Error(err)
					}
				})
				s, err := New(Config{DB: db, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}

func order(customer string, cents int64, at string) event.OrderCreated {
	return event.OrderCreated{OrderID: uuid.NewString(), CustomerID: customer, AmountCents: cents, CreatedAt: at}
}

func announce(t testing.TB, e event.OrderCreated) outbox.Message {
	t.Helper()
	m, err := e.Message()
	if err != nil {
		t.Fatal(err)
	}
	m.ID = uuid.New()
	return m
}

// model is what must come out, added up in the plainest way.
type model map[string]*Sums

func (m model) add(name string, cents int64) {
	if m[name] == nil {
		m[name] = &Sums{RevenueCents: new(big.Int)}
	}
	m[name].Orders++
	m[name].RevenueCents.Add(m[name].RevenueCents, big.NewInt(cents))
}

func (m model) check(t *testing.T, name string, got Sums) {
	t.Helper()
	want := m[name]
	if want == nil || got.Orders != want.Orders || got.RevenueCents.Cmp(want.RevenueCents) != 0 {
		t.Errorf("%s: got %+v, want %+v", name, got, want)
	}
}

// Exact to the cent, whatever the amounts, when every message is handled several
// times at once by two processes' worth of services, and some fail in between.
func TestExactUnderConcurrentDuplicates(t *testing.T) {
	orders, copies := testsize.Pick(60, 1000), 3
	random := testsize.Rand(testsize.Seed(t), "orders")
	onEach(t, func(t *testing.T, open func() *Service) {
		services := []*Service{open(), open()}
		minutes, customers, total := model{}, model{}, model{}
		begin := time.Date(2026, 7, 30, 23, 58, 30, 0, time.UTC)
		var work []outbox.Message
		for range orders {
			at := begin.Add(time.Duration(random.IntN(180)) * time.Second)
			customer := fmt.Sprintf("c%d", random.IntN(5))
			cents := randomAmount(random)
			minutes.add(at.Truncate(time.Minute).String(), cents)
			customers.add(customer, cents)
			total.add("all", cents)
			m := announce(t, order(customer, cents, at.Format(event.TimeLayout)))
			for range copies {
				work = append(work, m)
			}
		}
		random.Shuffle(len(work), func(i, j int) { work[i], work[j] = work[j], work[i] })
		next := make(chan outbox.Message)
		var workers sync.WaitGroup
		for i := range 8 {
			workers.Go(func() {
				for m := range next {
					if err := services[i%2].Handle(t.Context(), m); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for i, m := range work {
			if i%10 == 0 { // one whose transaction is cut short
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_ = services[0].Handle(ctx, m)
			}
			next <- m
		}
		close(next)
		workers.Wait()

		gotMinutes, err := services[1].Minutes(t.Context(), 100)
		if err != nil || len(gotMinutes) != len(minutes) {
			t.Fatalf("%d minutes, %v; want %d", len(gotMinutes), err, len(minutes))
		}
		for _, m := range gotMinutes {
			minutes.check(t, m.Minute.String(), m.Sums)
		}
		if !slices.IsSortedFunc(gotMinutes, func(a, b Minute) int { return a.Minute.Compare(b.Minute) }) {
			t.Errorf("the minutes are not in order: %v", gotMinutes)
		}
		gotCustomers, err := services[0].Customers(t.Context(), 100)
		if err != nil || len(gotCustomers) != len(customers) {
			t.Fatalf("%d customers, %v; want %d", len(gotCustomers), err, len(customers))
		}
		for _, c := range gotCustomers {
			customers.check(t, c.CustomerID, c.Sums)
		}
		if !slices.IsSortedFunc(gotCustomers, func(a, b Customer) int { return b.RevenueCents.Cmp(a.RevenueCents) }) {
			t.Errorf("the customers are not in order: %v", gotCustomers)
		}
		sums, err := services[0].Total(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		total.check(t, "all", sums)
	})
}

func randomAmount(random *rand.Rand) int64 {
	switch random.IntN(4) {
	case 0:
		return math.MaxInt64 - int64(random.IntN(3))
	case 1:
		return 1<<32 - 1 + int64(random.IntN(3))
	}
	return 1 + random.Int64N(100_000)
}

func TestOrderOfCustomers(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *Service) {
		s := open()
		// b's low part alone would be worth more than a's.
		for customer, amounts := range map[string][]int64{
			"a": {3 << 32}, "b": {1<<32 - 1, 1<<32 - 1, 1<<32 - 1}, "c": {1 << 33}, "d": {1<<33 + 1}, "e": {1 << 33},
		} {
			for _, cents := range amounts {
				if err := s.Handle(t.Context(), announce(t, order(customer, cents, "2026-07-30T20:27:10.628Z"))); err != nil {
					t.Fatal(err)
				}
			}
		}
		customers, err := s.Customers(t.Context(), 4)
		if err != nil {
			t.Fatal(err)
		}
		var names string
		for _, c := range customers {
			names += c.CustomerID
		}
		if names != "abdc" {
			t.Errorf("in order %s: %v", names, customers)
		}
	})
}

// The effect and the record are one: a failure of either leaves neither.
func TestNothingIsHalfCounted(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *Service) {
		s := open()
		m := announce(t, order(strings.Repeat("x", 1<<20), 1, "2026-07-30T20:27:10.628Z"))
		first := s.Handle(t.Context(), m)
		total, err := s.Total(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if first == nil && total.Orders != 1 || first != nil && total.Orders != 0 {
			t.Errorf("%v, and %d orders are counted", first, total.Orders)
		}
		if first != nil && outbox.ClassOf(first) != outbox.ClassPermanent {
			t.Errorf("%v is %v", first, outbox.ClassOf(first))
		}
	})
}

func TestWhatIsNoOrder(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *Service) {
		s := open()
		m := announce(t, order("c1", 1, "2026-07-30T20:27:10.628Z"))
		m.Payload = []byte("{")
		if err := s.Handle(t.Context(), m); err == nil || outbox.ClassOf(err) != outbox.ClassPermanent {
			t.Errorf("error %v", err)
		}
		m.Type = "order.cancelled"
		if err := s.Handle(t.Context(), m); err != nil {
			t.Error(err)
		}
		m = announce(t, order("c1", 1, "2026-07-30T20:27:10.628Z"))
		m.ID = uuid.Nil
		if err := s.Handle(t.Context(), m); err == nil || outbox.ClassOf(err) != outbox.ClassPermanent {
			t.Errorf("no id: error %v", err)
		}
		if total, err := s.Total(t.Context()); err != nil || total.Orders != 0 || total.RevenueCents.Sign() != 0 {
			t.Errorf("total %+v, %v", total, err)
		}
	})
}

func TestHandler(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *Service) {
		s := open()
		const hostile = `"><script>alert(1)</script>` + "\u2028"
		for _, e := range []event.OrderCreated{
			order("c1", math.MaxInt64, "2026-07-30T20:27:10.628Z"),
			order("c1", math.MaxInt64, "2026-07-30T22:27:59+02:00"),
			order(hostile, 5, "2026-07-30T20:29:00Z"),
		} {
			if err := s.Handle(t.Context(), announce(t, e)); err != nil {
				t.Fatal(err)
			}
		}
		get := func(path string) (int, string, string) {
			recorder := httptest.NewRecorder()
			s.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
			return recorder.Code, recorder.Header().Get("Content-Type"), strings.TrimSpace(recorder.Body.String())
		}
		quoted, err := json.Marshal(hostile)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{
			"/minutes":           `{"minutes":[{"minute":"2026-07-30T20:27:00Z","orders":2,"revenueCents":18446744073709551614},{"minute":"2026-07-30T20:29:00Z","orders":1,"revenueCents":5}]}`,
			"/minutes?limit=1":   `{"minutes":[{"minute":"2026-07-30T20:29:00Z","orders":1,"revenueCents":5}]}`,
			"/customers":         `{"customers":[{"customerId":"c1","orders":2,"revenueCents":18446744073709551614},{"customerId":` + string(quoted) + `,"orders":1,"revenueCents":5}]}`,
			"/customers?limit=1": `{"customers":[{"customerId":"c1","orders":2,"revenueCents":18446744073709551614}]}`,
			"/total":             `{"orders":3,"revenueCents":18446744073709551619}`,
		} {
			if code, kind, body := get(path); code != 200 || kind != "application/json" || body != want {
				t.Errorf("%s: %d %s\n got %s\nwant %s", path, code, kind, body, want)
			}
		}
		for _, path := range []string{"/minutes?limit=0", "/minutes?limit=-1", "/minutes?limit=1001", "/customers?limit=x", "/customers?limit=", "/minutes?limit=1&limit=2", "/minutes?limit=99999999999999999999"} {
			if code, kind, body := get(path); code != 400 || kind != "application/problem+json" || !strings.Contains(body, `"field":"limit"`) {
				t.Errorf("%s: %d %s %s", path, code, kind, body)
			}
		}
		if code, kind, _ := get("/other"); code != 404 || kind != "application/problem+json" {
			t.Errorf("other: %d %s", code, kind)
		}
	})
}

func TestConfigNeedsADatabase(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("no error")
	}
}
