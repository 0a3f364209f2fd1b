package search

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
)

func open(t testing.TB, path string) *Service {
	t.Helper()
	s, err := Open(Config{Path: path, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func shut(t testing.TB, s *Service) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// opened is a service with an index of the test's own.
func opened(t testing.TB) *Service {
	s := open(t, filepath.Join(t.TempDir(), "index"))
	t.Cleanup(func() { shut(t, s) })
	return s
}

func order(customer string, cents int64) event.OrderCreated {
	return event.OrderCreated{OrderID: uuid.NewString(), CustomerID: customer, AmountCents: cents, CreatedAt: "2026-07-30T20:27:10.628Z"}
}

func (s *Service) handle(t testing.TB, orders ...event.OrderCreated) {
	t.Helper()
	var wait sync.WaitGroup
	slots := make(chan struct{}, 20)
	for _, e := range orders {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			m, err := e.Message()
			if err == nil {
				m.ID = uuid.New()
				err = s.Handle(t.Context(), m)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
}

func (s *Service) find(t testing.TB, text string) []Order {
	t.Helper()
	result, err := s.Search(t.Context(), text, MaxLimit)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if int(result.Total) != len(result.Orders) {
		t.Errorf("%q: %d of %d", text, len(result.Orders), result.Total)
	}
	return result.Orders
}

func (s *Service) count(t testing.TB) int {
	t.Helper()
	n, err := s.Count()
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

func TestFinds(t *testing.T) {
	s := opened(t)
	c1, anna, zoe, wang := order("c1", 4999), order("Anna  Müller", 100), order("ZOE\u0308 O'Neill-Smith", 100), order("王小明", 7)
	largest, next := order("rich", math.MaxInt64), order("poor", math.MaxInt64-1)
	smile, c10, the := order("☺", 9), order("c10", 49990), order("The Will", 3)
	s.handle(t, c1, anna, zoe, wang, largest, next, smile, c10, the)
	for text, want := range map[string][]event.OrderCreated{
		c1.OrderID:                     {c1},
		strings.ToUpper(c1.OrderID):    {c1},
		"{" + c1.OrderID + "}":         {c1},
		"c1":                           {c1},
		" c1 ":                         {c1},
		"C1":                           {c1},
		"c10":                          {c10},
		"c":                            nil,
		"Anna  Müller":                 {anna},
		"müller":                       {anna},
		"MU\u0308LLER anna":            {anna},
		"anna zoë":                     nil,
		"Anna,Müller":                  {anna},
		"zoë":                          {zoe},
		"smith":                        {zoe},
		"王小明":                          {wang},
		"小":                            {wang},
		"4999":                         {c1},
		"49.99":                        {c1},
		"49.9":                         nil,
		"1.00":                         {anna, zoe},
		"100":                          {anna, zoe},
		"9223372036854775807":          {largest},
		"92233720368547758.07":         {largest},
		"9223372036854775806":          {next},
		"9223372036854775808":          nil,
		"-1":                           nil,
		"☺":                            {smile},
		"the":                          {the},
		"nobody":                       nil,
		"*":                            nil,
		"customerId:c1":                nil,
		"customerId:":                  nil,
		"2026-07-30T20:27:10.628Z":     nil,
		"c1 OR c10":                    nil,
		"+c1 -c1":                      {c1},
		`"c1`:                          {c1},
		"c1~2^9":                       nil,
		"/.*/":                         nil,
		"a:b:c AND (":                  nil,
		strings.Repeat("(", MaxQuery):  nil,
		strings.Repeat("a ", MaxQuery): nil,
		"\x00":                         nil,
	} {
		got := map[string]bool{}
		for _, o := range s.find(t, text) {
			got[o.OrderID] = true
		}
		for _, e := range want {
			if !got[e.OrderID] {
				t.Errorf("%q does not find the order of %s", text, e.CustomerID)
			}
			delete(got, e.OrderID)
		}
		if len(got) > 0 {
			t.Errorf("%q finds too much: %v", text, s.find(t, text))
		}
	}
	found := s.find(t, largest.OrderID)
	if len(found) != 1 || found[0] != (Order{largest.OrderID, "rich", math.MaxInt64, "2026-07-30T20:27:10.628Z"}) {
		t.Errorf("found %+v", found)
	}
}

// Whole matches come first, then the newest.
func TestBestFirst(t *testing.T) {
	s := opened(t)
	var orders []event.OrderCreated
	for i, customer := range []string{"anna b", "anna", "b anna", "anna", "Anna"} {
		e := order(customer, 1)
		e.CreatedAt = fmt.Sprintf("2026-07-30T20:27:1%d.628Z", i)
		orders = append(orders, e)
	}
	s.handle(t, orders...)
	var names []string
	for _, o := range s.find(t, "anna") {
		names = append(names, o.CustomerID+o.CreatedAt[18:19])
	}
	if got := strings.Join(names, ", "); got != "anna3, anna1, Anna4, b anna2, anna b0" {
		t.Errorf("in order %s", got)
	}
}

func TestIdempotentAndKept(t *testing.T) {
	n := testsize.Pick(100, 1000)
	path := filepath.Join(t.TempDir(), "index")
	s := open(t, path)
	var duplicates, first int
	var mu sync.Mutex
	s.handled = func(_ event.OrderCreated, duplicate bool) {
		mu.Lock()
		defer mu.Unlock()
		if duplicate {
			duplicates++
		} else {
			first++
		}
	}
	var orders []event.OrderCreated
	for i := range n {
		orders = append(orders, order(fmt.Sprintf("c%d", i), int64(i+1)))
	}
	s.handle(t, orders...)
	s.handle(t, orders...)
	if s.count(t) != n || first != n || duplicates != n {
		t.Errorf("%d orders; %d are told to be new, %d to be known", s.count(t), first, duplicates)
	}
	for range 2 {
		shut(t, s)
		s = open(t, path)
		if s.count(t) != n {
			t.Errorf("%d orders after a restart", s.count(t))
		}
	}
	defer shut(t, s)
	for _, e := range orders {
		if found := s.find(t, e.OrderID); len(found) != 1 || found[0].CustomerID != e.CustomerID || found[0].AmountCents != e.AmountCents {
			t.Errorf("order %s: %+v", e.OrderID, found)
		}
	}
}

func TestHostileCustomers(t *testing.T) {
	s := opened(t)
	for _, customer := range []string{
		strings.Repeat("x", 100_000), strings.Repeat("wörd ", 20_000), "a\x00b", "\u202eabc", `"><script>`, "\n", "..", "🙂🙂",
	} {
		e := order(customer, 1)
		s.handle(t, e)
		found := s.find(t, e.OrderID)
		if len(found) != 1 || len([]rune(found[0].CustomerID)) > MaxShown || !strings.HasPrefix(customer, strings.TrimSuffix(found[0].CustomerID, "…")) {
			t.Errorf("%.20q: found %.200v", customer, found)
		}
	}
}

func TestWhatIsNoOrder(t *testing.T) {
	s := opened(t)
	if err := s.Handle(t.Context(), outbox.Message{Type: event.TypeOrderCreated, Payload: []byte("{")}); err == nil || outbox.ClassOf(err) != outbox.ClassPermanent {
		t.Errorf("error %v", err)
	}
	if err := s.Handle(t.Context(), outbox.Message{Type: "order.cancelled", Payload: []byte("{")}); err != nil {
		t.Error(err)
	}
	if err := s.Check(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestHandler(t *testing.T) {
	s := opened(t)
	var orders []event.OrderCreated
	for range MaxLimit + 50 {
		orders = append(orders, order("many", 5))
	}
	one := order(`"><script>alert(1)</script>`, 4999)
	s.handle(t, append(orders, one)...)
	get := func(query string) (int, string, string) {
		recorder := httptest.NewRecorder()
		s.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/search"+query, nil))
		return recorder.Code, recorder.Header().Get("Content-Type"), recorder.Body.String()
	}
	for query, want := range map[string]int{"?q=many": 20, "?q=many&limit=1": 1, "?q=many&limit=100": 100, "?q=nobody": 0, "?q=49.99": 1} {
		code, kind, body := get(query)
		var got Result
		if err := json.Unmarshal([]byte(body), &got); err != nil || code != 200 || kind != "application/json" || len(got.Orders) != want {
			t.Errorf("%s: %d %s, %d orders of %d, %v", query, code, kind, len(got.Orders), got.Total, err)
		}
		if strings.Contains(query, "many") && got.Total != MaxLimit+50 {
			t.Errorf("%s: %d in all", query, got.Total)
		}
	}
	if _, _, body := get("?q=nobody"); strings.TrimSpace(body) != `{"total":0,"orders":[]}` {
		t.Errorf("nothing is %s", body)
	}
	if _, _, body := get("?q=script"); strings.Contains(body, "<script>") || !strings.Contains(body, one.OrderID) {
		t.Errorf("body %s", body)
	}
	long := url.QueryEscape(strings.Repeat("ä", MaxQuery+1))
	for query, field := range map[string]string{
		"": "q", "?q=": "q", "?q=%20%09": "q", "?q=a&q=b": "q", "?q=%ff": "q", "?q=" + long: "q",
		"?q=a&limit=0": "limit", "?q=a&limit=101": "limit", "?q=a&limit=1e1": "limit",
	} {
		code, kind, body := get(query)
		if code != 400 || kind != "application/problem+json" || !strings.Contains(body, `"field":"`+field+`"`) {
			t.Errorf("%s: %d %s %s", query, code, kind, body)
		}
	}
	if code, kind, _ := get("/other?q=a"); code != 404 || kind != "application/problem+json" {
		t.Errorf("%d %s", code, kind)
	}
	shut(t, s)
	if code, kind, body := get("?q=a"); code != 500 || kind != "application/problem+json" || strings.Contains(body, "closed") {
		t.Errorf("closed: %d %s %s", code, kind, body)
	}
	if err := s.Check(t.Context()); err == nil {
		t.Error("closed: the check finds nothing")
	}
}
