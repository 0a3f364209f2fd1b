package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/outbox"
)

// fate is what becomes of an order's transaction after it has enqueued.
type fate struct {
	rollBack bool
	open     time.Duration // it stays open before it ends
}

type fateKey struct{}

func fateOf(ctx context.Context) fate {
	f, _ := ctx.Value(fateKey{}).(fate)
	return f
}

var errRolledBack = errors.New("the test rolls this order back")

// createCustomers makes the table whose rows the orders of a customer take turns
// with.
const createCustomers = `CREATE TABLE IF NOT EXISTS customers (id text PRIMARY KEY, turn integer NOT NULL)`

// turnHeader tells which of its customer's orders one is, counted from 1 in the
// order of their commits.
const turnHeader = "turn"

// perCustomer makes the customer the key of an order's event, so that keys have
// many messages, and numbers them under a row lock. What is rolled back leaves
// no hole in the numbers.
type perCustomer struct{ outbox.Inserter[*sql.Tx] }

func (p perCustomer) Insert(ctx context.Context, tx *sql.Tx, msgs []outbox.Message) error {
	const next = `INSERT INTO customers (id, turn) VALUES ($1, 1)
		ON CONFLICT (id) DO UPDATE SET turn = customers.turn + 1 RETURNING turn`
	for i := range msgs {
		created, err := event.DecodeOrderCreated(msgs[i].Payload)
		if err != nil {
			return err
		}
		var turn int
		if err := tx.QueryRowContext(ctx, next, created.CustomerID).Scan(&turn); err != nil {
			return err
		}
		msgs[i].Key = created.CustomerID
		msgs[i].Headers = map[string]string{turnHeader: strconv.Itoa(turn)}
	}
	if err := p.Inserter.Insert(ctx, tx, msgs); err != nil {
		return err
	}
	f := fateOf(ctx)
	if f.open > 0 {
		time.Sleep(f.open)
	}
	if f.rollBack {
		return errRolledBack
	}
	return nil
}

// unexpectedOnly logs for a failed test what the order service says, but not
// that an order was rolled back which was to be.
func unexpectedOnly(t testing.TB) *slog.Logger {
	return slog.New(unexpected{slog.NewTextHandler(t.Output(), nil)})
}

type unexpected struct{ slog.Handler }

func (u unexpected) Handle(ctx context.Context, r slog.Record) error {
	if fateOf(ctx).rollBack {
		return nil
	}
	return u.Handler.Handle(ctx, r)
}

// load places orders at the shop, several at a time.
type load struct {
	shop   *shop
	random *rand.Rand

	customers int
	clients   int
	// tolerant: an answer other than 201 is nothing to complain about.
	tolerant bool
}

func (s *shop) newLoad(random *rand.Rand) *load {
	return &load{shop: s, random: random, customers: 40, clients: 8}
}

type wish struct {
	customer string
	amount   int64
	fate     fate
}

// wishes are n orders that are to commit, and some between them that are not.
// Some stay open while others commit.
func (l *load) wishes(n int) []wish {
	var all []wish
	for n > 0 {
		w := wish{customer: fmt.Sprintf("customer %d", l.random.IntN(l.customers)), amount: 1 + l.random.Int64N(1_000_000)}
		if l.random.IntN(20) == 0 {
			w.fate.open = time.Duration(l.random.IntN(100)) * time.Millisecond
		}
		if w.fate.rollBack = l.random.IntN(8) == 0; !w.fate.rollBack {
			n--
		}
		all = append(all, w)
	}
	return all
}

// begin places n orders and returns at once; wait waits until all are placed.
// Use it from one goroutine.
func (l *load) begin(n int) (wait func()) {
	wishes := make(chan wish)
	all := l.wishes(n)
	var clients sync.WaitGroup
	for range l.clients {
		clients.Go(func() {
			for w := range wishes {
				l.place(w)
			}
		})
	}
	clients.Go(func() {
		defer close(wishes)
		for _, w := range all {
			wishes <- w
		}
	})
	// The test must not end before its clients have.
	l.shop.t.Cleanup(clients.Wait)
	return clients.Wait
}

// place places n orders.
func (l *load) placeAll(n int) { l.begin(n)() }

func (l *load) place(w wish) {
	body := fmt.Sprintf(`{"customerId":%q,"amountCents":%d}`, w.customer, w.amount)
	request := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	ctx := context.WithValue(context.WithoutCancel(l.shop.t.Context()), fateKey{}, w.fate)
	answer := httptest.NewRecorder()
	l.shop.service.ServeHTTP(answer, request.WithContext(ctx))
	want := http.StatusCreated
	if w.fate.rollBack {
		want = http.StatusInternalServerError
	}
	if answer.Code != want && !l.tolerant {
		l.shop.t.Errorf("order %s: status %d, want %d: %s", body, answer.Code, want, answer.Body)
	}
}
