package orders

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/test/internal/programs"
)

const valid = `{"customerId":"c1","amountCents":4999}`

func TestPlaceAndFind(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := openShop(t, url)
		for _, c := range []struct {
			customer string
			amount   int64
		}{
			{"c1", 4999},
			{"Zoë \U0001F40E's \"shop\" <a>", 1},
			{strings.Repeat("ü", order.MaxCustomer), math.MaxInt64},
		} {
			placed := s.post(fmt.Sprintf(` {"amountCents": %d , "customerId": %q} `, c.amount, c.customer))
			if placed.status != http.StatusCreated {
				t.Fatalf("status %d: %s", placed.status, placed.body)
			}
			o := placed.order(t)
			if o.CustomerID != c.customer || o.AmountCents != c.amount {
				t.Errorf("placed %+v, answered %+v", c, o)
			}
			if id, err := uuid.Parse(o.ID); err != nil || id.Version() != 7 {
				t.Errorf("id %q", o.ID)
			}
			created, err := time.Parse(event.TimeLayout, o.CreatedAt)
			if err != nil || time.Since(created).Abs() > programs.Patience {
				t.Errorf("created at %q, %v", o.CreatedAt, err)
			}
			if got := placed.header.Get("Location"); got != "/orders/"+o.ID {
				t.Errorf("location %q", got)
			}
			found := s.send(http.MethodGet, "/orders/"+o.ID, "")
			if found.status != http.StatusOK || found.body != placed.body {
				t.Errorf("placed %s\nfound %d %s", placed.body, found.status, found.body)
			}
		}
		// The answer as the reference writes it: names, order, milliseconds.
		if got := s.post(valid); !strings.HasSuffix(got.body, `Z"}`+"\n") || !strings.Contains(got.body, `","customer_id":"c1","amount_cents":4999,"created_at":"`) {
			t.Errorf("answer %s", got.body)
		}
	})
}

func TestBadRequests(t *testing.T) {
	with := func(customer, amount string) string {
		return `{"customerId":` + customer + `,"amountCents":` + amount + `}`
	}
	pad := func(size int) string { return valid + strings.Repeat(" ", size-len(valid)) }
	bodies := []struct {
		name, body string
		status     int
		fields     string // what the problem names
	}{
		{"nothing", "", 400, "body"},
		{"text", "hello", 400, "body"},
		{"a list", "[" + valid + "]", 400, "body"},
		{"a string", `"order"`, 400, "body"},
		{"null", "null", 400, "customerId amountCents"},
		{"cut off", valid[:len(valid)-1], 400, "body"},
		{"two objects", valid + valid, 400, "body"},
		{"trailing text", valid + "x", 400, "body"},
		{"a trailing comma", `{"customerId":"c1","amountCents":4999,}`, 400, "body"},
		{"not UTF-8", with("\"\xff\"", "1"), 400, "customerId"},
		{"half a surrogate pair", with(`"\ud800"`, "1"), 400, "customerId"},
		{"an unknown field", `{"customerId":"c1","amountCents":1,"currency":"EUR"}`, 400, "currency"},
		{"another case", `{"CustomerID":"c1","amountCents":1}`, 400, "CustomerID"},
		{"snake case", `{"customer_id":"c1","amount_cents":1}`, 400, "customer_id"},
		{"a customer twice", `{"customerId":"c1","customerId":"c2","amountCents":1}`, 400, "customerId"},
		{"an amount twice", `{"customerId":"c1","amountCents":1,"amountCents":1}`, 400, "amountCents"},
		{"no fields", `{}`, 400, "customerId amountCents"},
		{"no customer", `{"amountCents":1}`, 400, "customerId"},
		{"no amount", `{"customerId":"c1"}`, 400, "amountCents"},
		{"both wrong", with(`""`, "0"), 400, "customerId amountCents"},
		{"an empty customer", with(`""`, "1"), 400, "customerId"},
		{"a blank customer", with(`" \u2003"`, "1"), 400, "customerId"},
		{"a null customer", with(`null`, "1"), 400, "customerId"},
		{"a customer in numbers", with(`7`, "1"), 400, "customerId"},
		{"a customer in a list", with(`["c1"]`, "1"), 400, "customerId"},
		{"a NUL in the customer", with(`"c\u00001"`, "1"), 400, "customerId"},
		{"a control character", with(`"c\u001b1"`, "1"), 400, "customerId"},
		{"a noncharacter", with(`"c\uffff"`, "1"), 400, "customerId"},
		{"a long customer", with(`"`+strings.Repeat("x", order.MaxCustomer+1)+`"`, "1"), 400, "customerId"},
		{"no amount of money", with(`"c1"`, "0"), 400, "amountCents"},
		{"minus zero", with(`"c1"`, "-0"), 400, "amountCents"},
		{"negative", with(`"c1"`, "-1"), 400, "amountCents"},
		{"fractional", with(`"c1"`, "49.99"), 400, "amountCents"},
		{"a whole float", with(`"c1"`, "49.0"), 400, "amountCents"},
		{"an exponent", with(`"c1"`, "1e3"), 400, "amountCents"},
		{"a string", with(`"c1"`, `"4999"`), 400, "amountCents"},
		{"true", with(`"c1"`, "true"), 400, "amountCents"},
		{"null amount", with(`"c1"`, "null"), 400, "amountCents"},
		{"an object", with(`"c1"`, "{}"), 400, "amountCents"},
		{"a leading zero", with(`"c1"`, "01"), 400, "body"},
		{"one too many", with(`"c1"`, "9223372036854775808"), 400, "amountCents"},
		{"far too many", with(`"c1"`, strings.Repeat("9", 400)), 400, "amountCents"},
		{"a large body", pad(order.MaxBody + 1), 413, "body"},
		{"a large customer", with(`"`+strings.Repeat("x", order.MaxBody)+`"`, "1"), 413, "body"},
	}
	onEach(t, func(t *testing.T, url string) {
		s := openShop(t, url)
		check := func(t *testing.T, got answer, status int, fields string) {
			t.Helper()
			if got.status != status {
				t.Fatalf("status %d, want %d: %s", got.status, status, got.body)
			}
			var named []string
			for _, e := range got.problem(t).Errors {
				named = append(named, e.Field)
				if e.Detail == "" {
					t.Errorf("field %s: no detail", e.Field)
				}
			}
			if strings.Join(named, " ") != fields {
				t.Errorf("the problem names %q, want %q: %s", named, fields, got.body)
			}
		}
		for _, c := range bodies {
			t.Run(c.name, func(t *testing.T) { check(t, s.post(c.body), c.status, c.fields) })
		}
		for _, contentType := range []string{"text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "application/jsonx", "json", ""} {
			t.Run("content type "+contentType, func(t *testing.T) {
				check(t, s.send(http.MethodPost, "/orders", valid, "Content-Type", contentType), 415, "Content-Type")
			})
		}
		for name, keys := range map[string][]string{
			"an empty key":  {""},
			"a long key":    {strings.Repeat("k", order.MaxKey+1)},
			"a spaced key":  {"a b"},
			"a foreign key": {"schlüssel"},
			"two keys":      {"k1", "k2"},
		} {
			t.Run(name, func(t *testing.T) {
				var headers []string
				for _, key := range keys {
					headers = append(headers, "Idempotency-Key", key)
				}
				check(t, s.post(valid, headers...), 400, "Idempotency-Key")
			})
		}
		if n := s.stored(); n != 0 {
			t.Errorf("bad requests stored %d orders", n)
		}
		// What is just allowed, so that the limits are where they are said to be.
		for name, got := range map[string]answer{
			"largest body": s.post(pad(order.MaxBody)),
			"charset":      s.send(http.MethodPost, "/orders", valid, "Content-Type", "Application/JSON; charset=UTF-8"),
			"longest key":  s.post(valid, "Idempotency-Key", strings.Repeat("k", order.MaxKey)),
		} {
			if got.status != http.StatusCreated {
				t.Errorf("%s: status %d: %s", name, got.status, got.body)
			}
		}
	})
}

func TestPathsAndMethods(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := openShop(t, url)
		for _, c := range []struct {
			method, path string
			status       int
			allow        string
		}{
			{"GET", "/orders", 405, "POST"},
			{"DELETE", "/orders", 405, "POST"},
			{"POST", "/orders/0198f6a2-7c1e-7d7c-9a52-3f2b8a1d4e5f", 405, "GET, HEAD"},
			{"PUT", "/healthz", 405, "GET, HEAD"},
			{"GET", "/orders/0198f6a2-7c1e-7d7c-9a52-3f2b8a1d4e5f", 404, ""},
			{"GET", "/orders/1", 404, ""},
			{"GET", "/orders/%00", 404, ""},
			{"GET", "/orders/'%20OR%201=1", 404, ""},
			{"GET", "/", 404, ""},
			{"POST", "/order", 404, ""},
		} {
			got := s.send(c.method, c.path, "")
			if got.status != c.status || got.header.Get("Allow") != c.allow {
				t.Errorf("%s %s: status %d, allow %q; want %d, %q", c.method, c.path, got.status, got.header.Get("Allow"), c.status, c.allow)
			}
			got.problem(t)
		}
		if got := s.send("GET", "/healthz", ""); got.status != 200 || got.body != "{\"status\":\"ok\"}\n" {
			t.Errorf("healthy: %d %s", got.status, got.body)
		}
		if got := s.send("HEAD", "/healthz", ""); got.status != 200 {
			t.Errorf("HEAD: %d", got.status)
		}
		if err := s.db.Close(); err != nil {
			t.Fatal(err)
		}
		if got := s.send("GET", "/healthz", ""); got.status != 503 {
			t.Errorf("unhealthy: %d %s", got.status, got.body)
		} else {
			got.problem(t)
		}
	})
}
