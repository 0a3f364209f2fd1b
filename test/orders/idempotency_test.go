package orders

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/postrider/postrider/examples/orders/order"
)

func TestRetriesGetTheFirstOrder(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := openShop(t, url)
		events := readEvents(t, s)
		first := s.post(valid, "Idempotency-Key", "k1")
		if first.status != http.StatusCreated {
			t.Fatalf("status %d: %s", first.status, first.body)
		}
		for _, body := range []string{valid, `{ "amountCents": 4999, "customerId": "\u0063\u0031" }`} {
			again := s.post(body, "Idempotency-Key", "k1")
			if again.status != first.status || again.body != first.body || again.header.Get("Location") != first.header.Get("Location") {
				t.Errorf("first %d %s\nagain %d %s", first.status, first.body, again.status, again.body)
			}
		}
		for _, body := range []string{`{"customerId":"c1","amountCents":5000}`, `{"customerId":"c2","amountCents":4999}`} {
			other := s.post(body, "Idempotency-Key", "k1")
			if other.status != http.StatusUnprocessableEntity {
				t.Fatalf("another body: status %d: %s", other.status, other.body)
			}
			if p := other.problem(t); len(p.Errors) != 1 || p.Errors[0].Field != "Idempotency-Key" {
				t.Errorf("another body: %s", other.body)
			}
		}
		// A bad request does not use its key up.
		if got := s.post("{}", "Idempotency-Key", "k2"); got.status != http.StatusBadRequest {
			t.Errorf("status %d: %s", got.status, got.body)
		}
		// Another key, a key in another case, and no key at all are new orders.
		for _, headers := range [][]string{{"Idempotency-Key", "k2"}, {"Idempotency-Key", "K1"}, nil, nil} {
			got := s.post(valid, headers...)
			if got.status != http.StatusCreated || got.order(t).ID == first.order(t).ID {
				t.Errorf("headers %q: status %d: %s", headers, got.status, got.body)
			}
		}
		if n := s.stored(); n != 5 {
			t.Errorf("%d orders stored, want 5", n)
		}
		events.expect(5)
	})
}

func TestConcurrentRetries(t *testing.T) {
	const retries, rounds = 16, 10
	onEach(t, func(t *testing.T, url string) {
		s := openShop(t, url)
		events := readEvents(t, s)
		for round := range rounds {
			key := fmt.Sprintf("round-%d", round)
			answers := atOnce(retries, func(int) answer { return s.post(valid, "Idempotency-Key", key) })
			for _, a := range answers {
				if a.status != http.StatusCreated || a.body != answers[0].body {
					t.Fatalf("answers differ:\n%d %s\n%d %s", answers[0].status, answers[0].body, a.status, a.body)
				}
			}
		}
		if n := s.stored(); n != rounds {
			t.Errorf("%d orders stored, want %d", n, rounds)
		}
		events.expect(rounds)
	})
}

// Different requests that fight for one key: one wins, and everybody who asked
// for the same as it gets its order.
func TestConcurrentUseOfOneKey(t *testing.T) {
	const clients, bodies = 16, 4
	onEach(t, func(t *testing.T, url string) {
		s := openShop(t, url)
		events := readEvents(t, s)
		answers := atOnce(clients, func(i int) answer {
			return s.post(fmt.Sprintf(`{"customerId":"c1","amountCents":%d}`, 1+i%bodies), "Idempotency-Key", "k")
		})
		created := make(map[string]int)
		refused := 0
		for i, a := range answers {
			switch a.status {
			case http.StatusCreated:
				created[a.body]++
				if got := a.order(t).AmountCents; got != int64(1+i%bodies) {
					t.Errorf("client %d was given an order of %d cents", i, got)
				}
			case http.StatusUnprocessableEntity:
				refused++
			default:
				t.Errorf("status %d: %s", a.status, a.body)
			}
		}
		if len(created) != 1 || refused != clients-clients/bodies {
			t.Errorf("created %v, refused %d", created, refused)
		}
		if n := s.stored(); n != 1 {
			t.Errorf("%d orders stored", n)
		}
		events.expect(1)
	})
}

// A first try that fails after it has taken the key must leave it free: of two
// at the same time, the second waits for the first and then places the order.
func TestKeyOfAFailedTryIsFree(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := openShop(t, url)
		events := readEvents(t, s)
		inside, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		s.inserter.fail = func(context.Context, *sql.Tx) (err error) {
			once.Do(func() {
				close(inside)
				<-goOn
				err = errors.New("the disk is full")
			})
			return err
		}
		first := make(chan answer, 1)
		go func() { first <- s.post(valid, "Idempotency-Key", "k") }()
		<-inside
		second := make(chan answer, 1)
		go func() { second <- s.post(valid, "Idempotency-Key", "k") }()
		close(goOn)
		if a := <-first; a.status != http.StatusInternalServerError {
			t.Errorf("first: status %d: %s", a.status, a.body)
		}
		if a := <-second; a.status != http.StatusCreated {
			t.Errorf("second: status %d: %s", a.status, a.body)
		}
		if n := s.stored(); n != 1 {
			t.Errorf("%d orders stored", n)
		}
		events.expect(1)
	})
}

// atOnce calls f n times at the same time.
func atOnce(n int, f func(i int) answer) []answer {
	answers := make([]answer, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			answers[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	return answers
}

// A step of the transaction fails: nothing of it remains, the client learns no
// internals, and no event exists.
func TestRolledBackOrderPublishesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := openShop(t, url)
		events := readEvents(t, s)
		for name, fail := range map[string]func(context.Context, *sql.Tx) error{
			"a step returns an error": func(context.Context, *sql.Tx) error {
				return errors.New("secret internals")
			},
			"a statement fails": func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO secret_internals VALUES (1)")
				return err
			},
			"the transaction is gone at commit": func(_ context.Context, tx *sql.Tx) error {
				return tx.Rollback()
			},
		} {
			t.Run(name, func(t *testing.T) {
				s.inserter.fail = fail
				defer func() { s.inserter.fail = nil }()
				got := s.post(valid, "Idempotency-Key", uuid.NewString())
				if got.status != http.StatusInternalServerError {
					t.Errorf("status %d: %s", got.status, got.body)
				}
				got.problem(t)
				if strings.Contains(got.body, "secret") || strings.Contains(strings.ToLower(got.body), "sql") {
					t.Errorf("the answer tells internals: %s", got.body)
				}
			})
		}
		if n := s.stored(); n != 0 {
			t.Errorf("%d orders stored", n)
		}
		// What is placed afterwards is the first and only event.
		if got := s.post(valid); got.status != http.StatusCreated {
			t.Fatalf("status %d: %s", got.status, got.body)
		}
		events.expect(1)
	})
}

// Placing an order whose table is gone is a 5xx without internals, too.
func TestBrokenDatabase(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := openShop(t, url)
		if _, err := s.db.ExecContext(t.Context(), "DROP TABLE orders"); err != nil {
			t.Fatal(err)
		}
		for _, got := range []answer{s.post(valid), s.send(http.MethodGet, "/orders/"+uuid.NewString(), "")} {
			if got.status != http.StatusInternalServerError || strings.Contains(got.body, "table") {
				t.Errorf("status %d: %s", got.status, got.body)
			}
			got.problem(t)
		}
	})
}

func TestNewReportsAllProblems(t *testing.T) {
	_, err := order.New(order.Config{})
	if joined, ok := err.(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 2 {
		t.Errorf("want 2 problems, got %v", err)
	}
}
