package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/examples/orders/database"
	"github.com/postrider/postrider/examples/orders/fulfilment"
	"github.com/postrider/postrider/examples/orders/order"
)

// shop is an order service on PostgreSQL, in the test's process, and a cloud:
//
//	relay, consumer → proxy (fails on demand) → broker (writes down) → emulator
type shop struct {
	t       testing.TB
	db      string // the database's URL
	data    *database.Database
	service http.Handler

	proxy        *awsproxy.Server
	broker       *broker
	queue, table string
	sqs          *sqs.Client // straight to the emulator
	fulfilment   *fulfilment.Service
}

var shops atomic.Int64

func newShop(t testing.TB, seed int64, db string) *shop {
	t.Helper()
	emulator := awsemulator.Start()
	t.Cleanup(emulator.Close)
	s := &shop{t: t, db: db, broker: newBroker(t, emulator.Endpoint), sqs: sqs.NewFromConfig(emulator.Config())}
	name := fmt.Sprintf("e2e-%d-%d", time.Now().Unix(), shops.Add(1))
	s.queue, s.table = name+"-orders", name+"-fulfilments"

	var err error
	if s.proxy, err = awsproxy.Start(s.broker.url, seed); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.proxy.Close)
	if s.fulfilment, err = fulfilment.New(fulfilment.Config{Client: dynamodb.NewFromConfig(emulator.Config()), Table: s.table}); err != nil {
		t.Fatal(err)
	}
	run(t, s.environment(), "postrider", "migrate", "up", "--db", db)
	run(t, s.environment(), "orders", "provision", "--plain")
	s.openService()
	return s
}

// openService makes the order service; see perCustomer for how it enqueues.
func (s *shop) openService() {
	s.t.Helper()
	where, err := config.ParseDatabase(s.db)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.data, err = database.Open(s.t.Context(), where, ""); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := s.data.Close(); err != nil {
			s.t.Error(err)
		}
	})
	s.exec(createCustomers)
	service, err := order.New(order.Config{DB: s.data.DB, Inserter: perCustomer{s.data.Inserter}, Logger: unexpectedOnly(s.t)})
	if err != nil {
		s.t.Fatal(err)
	}
	s.service = service.Handler()
}

func (s *shop) exec(statement string, args ...any) {
	s.t.Helper()
	if _, err := s.data.DB.ExecContext(context.WithoutCancel(s.t.Context()), statement, args...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) environment() []string {
	return environment(s.t, "AWS_ENDPOINT_URL="+s.proxy.URL, "ORDERS_QUEUE="+s.queue, "ORDERS_TABLE="+s.table)
}

// relay starts a relay with one route to the queue; args override.
func (s *shop) relay(args ...string) *process {
	s.t.Helper()
	fixed := []string{"relay", "--http", "127.0.0.1:0"}
	if !strings.Contains(strings.Join(args, " "), "--config") {
		fixed = append(fixed, "--to", "sqs://"+s.queue)
		if !strings.Contains(strings.Join(args, " "), "--db") {
			fixed = append(fixed, "--db", s.db)
		}
	}
	return start(s.t, s.environment(), "postrider", append(fixed, args...)...)
}

// consumer starts the fulfilment service.
func (s *shop) consumer() *process {
	s.t.Helper()
	return start(s.t, s.environment(), "orders", "consume", "fulfilment")
}
