package cli_test

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgstore"
)

// Names that differ in the case of letters only are different names, all the
// way: of schemas, which PostgreSQL would fold, of topics, routes and keys.
func TestMixedCaseNames(t *testing.T) {
	db := pgtest.Database(t)
	s := newShop(t, db) // in schema postrider, where nothing may come to be
	made, err := s.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: new(s.queue + "-Upper")})
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		p := s.world().run(t, append(args, "--db", db, "--schema", "PostRider")...)
		p.wantExit(0)
		return p.stdout.String()
	}
	run("migrate", "up", "--shards", "2")

	conn, err := pgx.Connect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		w := outbox.NewWriter(pgstore.Pgx{Schema: "PostRider"})
		if err := w.Enqueue(t.Context(), tx, outbox.Message{Topic: "Order.Placed", Key: "K", Payload: []byte("writer upper")},
			outbox.Message{Topic: "order.placed", Key: "k", Payload: []byte("writer lower")}); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `SELECT "PostRider".enqueue('Order.Placed', 'function upper', 'K'), "PostRider".enqueue('order.placed', 'function lower', 'k')`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	file := write(t, t.TempDir(), "p.yaml", `
routes:
  - {name: Shop, topics: ["Order.*"], to: "sqs://`+s.queue+`-Upper"}
  - {name: shop, topics: ["order.placed"], to: "sqs://`+s.queue+`"}
`)
	p := s.world().start(t, "relay", "--db", db, "--schema", "PostRider", "--config", file, "--http", "off")
	lower := s.receive(2)
	s.url = made.QueueUrl
	upper := s.receive(2)
	if lower["writer lower"] != 1 || lower["function lower"] != 1 || upper["writer upper"] != 1 || upper["function upper"] != 1 {
		t.Errorf("route shop sent %v, route Shop %v", lower, upper)
	}
	p.signal(syscall.SIGTERM)
	p.wantExit(0)

	status := run("status")
	for _, want := range []string{"Shop", "shop"} {
		if !strings.Contains(status, want) {
			t.Errorf("status lacks %s:\n%s", want, status)
		}
	}
	for route, topic := range map[string]string{"Shop": "Order.Placed", "shop": "order.placed"} {
		if list := run("list", "--route", route, "--state", "sent"); strings.Count(list, topic) != 2 {
			t.Errorf("list of route %s:\n%s", route, list)
		}
		var n int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM "PostRider".messages WHERE route = $1 AND topic = $2 AND state = 'sent'`, route, topic).Scan(&n); err != nil || n != 2 {
			t.Errorf("the view has %d messages of route %s, %v, want 2", n, route, err)
		}
	}
	var elsewhere int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM postrider.messages`).Scan(&elsewhere); err != nil || elsewhere != 0 {
		t.Errorf("%d messages are in schema postrider (%v)", elsewhere, err)
	}
}
