package orders

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/uuid"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/fulfilment"
	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
)

func TestOrdersReachFulfilment(t *testing.T) {
	const clients, each = 8, 5
	onEach(t, func(t *testing.T, url string) {
		s, a := openShop(t, url), newAWS(t)
		startRelay(t, s.relayStore(t), a.publisher())
		a.consume()
		atOnce(clients, func(client int) (last answer) {
			for i := range each {
				last = s.post(fmt.Sprintf(`{"customerId":"c%d","amountCents":%d}`, client, 1+i))
				if last.status != http.StatusCreated {
					t.Errorf("status %d: %s", last.status, last.body)
				}
			}
			return last
		})
		orders, err := order.List(t.Context(), s.db)
		if err != nil || len(orders) != clients*each {
			t.Fatalf("%d orders, %v", len(orders), err)
		}
		a.expectFulfilled(orders)
	})
}

// The event as it is on the queue and in the table, to the byte.
func TestEventIsGolden(t *testing.T) {
	placed := time.Date(2026, 7, 30, 22, 27, 10, 628_900_000, time.FixedZone("", 2*60*60))
	onEach(t, func(t *testing.T, url string) {
		db, a := openDatabase(t, url), newAWS(t)
		service, err := order.New(order.Config{DB: db.DB, Inserter: db.Inserter, Logger: quiet(t), Now: func() time.Time { return placed }})
		if err != nil {
			t.Fatal(err)
		}
		s := serve(t, service)
		o := s.post(valid).order(t)
		if o.CreatedAt != "2026-07-30T20:27:10.628Z" {
			t.Errorf("created at %s", o.CreatedAt)
		}
		store, err := db.RelayStore()
		if err != nil {
			t.Fatal(err)
		}
		startRelay(t, store, a.publisher())

		m := a.receive(a.queue)
		golden := `{"orderId":"` + o.ID + `","customerId":"c1","amountCents":4999,"createdAt":"2026-07-30T20:27:10.628Z"}`
		if *m.Body != golden {
			t.Errorf("body\n got %s\nwant %s", *m.Body, golden)
		}
		attributes := make(map[string]string)
		for name, value := range m.MessageAttributes {
			attributes[name] = *value.DataType + " " + *value.StringValue
		}
		if id := strings.TrimPrefix(attributes["postrider-id"], "String "); uuid.Validate(id) != nil {
			t.Errorf("id %q", id)
		}
		delete(attributes, "postrider-id")
		want := map[string]string{
			"EventType":       "String order.created",
			"postrider-key":   "String " + o.ID,
			"postrider-topic": "String orders",
			"content-type":    "String application/json",
		}
		if fmt.Sprint(attributes) != fmt.Sprint(want) {
			t.Errorf("attributes\n got %v\nwant %v", attributes, want)
		}

		if err := a.fulfilment.Handle(t.Context(), outbox.Message{Type: "order.created", Payload: []byte(*m.Body)}); err != nil {
			t.Fatal(err)
		}
		items, err := a.dynamo.Scan(t.Context(), &dynamodb.ScanInput{TableName: &a.table})
		if err != nil || len(items.Items) != 1 {
			t.Fatalf("%+v, %v", items, err)
		}
		item := make(map[string]string)
		for name, value := range items.Items[0] {
			switch v := value.(type) {
			case *types.AttributeValueMemberS:
				item[name] = "S " + v.Value
			case *types.AttributeValueMemberN:
				item[name] = "N " + v.Value
			}
		}
		want = map[string]string{
			"orderId":     "S " + o.ID,
			"customerId":  "S c1",
			"amountCents": "N 4999",
			"status":      "S received",
			"createdAt":   "S 2026-07-30T20:27:10.628Z",
		}
		if fmt.Sprint(item) != fmt.Sprint(want) {
			t.Errorf("item\n got %v\nwant %v", item, want)
		}
	})
}

// A thousand orders, of which one event is too large for SQS and one can be
// decoded by nobody: all others arrive, and those two are where they belong.
func TestTwoBadAmongAThousand(t *testing.T) {
	const good, batch = 998, 50
	onEach(t, func(t *testing.T, url string) {
		s, a := openShop(t, url), newAWS(t)
		orders := make([]order.Order, good)
		var messages []outbox.Message
		for i := range orders {
			o := order.Order{
				ID: uuid.NewString(), CustomerID: fmt.Sprintf("c%d", i%20), AmountCents: int64(i + 1),
				CreatedAt: time.Now().UTC().Format(event.TimeLayout),
			}
			orders[i] = o
			m, err := event.OrderCreated{OrderID: o.ID, CustomerID: o.CustomerID, AmountCents: o.AmountCents, CreatedAt: o.CreatedAt}.Message()
			if err != nil {
				t.Fatal(err)
			}
			messages = append(messages, m)
			switch i {
			case good / 3:
				messages = append(messages, outbox.Message{
					Topic: event.Topic, Type: event.TypeOrderCreated, Key: "too large",
					Payload: bytes.Repeat([]byte("x"), sqsbroker.MaxMessageBytes+1),
				})
			case good / 2:
				messages = append(messages, outbox.Message{
					Topic: event.Topic, Type: event.TypeOrderCreated, Key: "not an event", Payload: []byte(`{"orderId":7}`),
				})
			}
		}
		writer := outbox.NewWriter(s.inserter.Inserter)
		for len(messages) > 0 {
			n := min(batch, len(messages))
			s.inTx(func(tx *sql.Tx) error { return writer.Enqueue(t.Context(), tx, messages[:n]...) })
			messages = messages[n:]
		}
		startRelay(t, s.relayStore(t), a.publisher())
		a.consume()
		a.expectFulfilled(orders)

		dead := cloud.DeadLetterQueue(a.queue)
		eventually(t, "one message is in the dead-letter queue", func() error {
			if n := a.waiting(dead); n != 1 {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
		if m := a.receive(dead); *m.Body != `{"orderId":7}` {
			t.Errorf("in the dead-letter queue: %s", *m.Body)
		}
		eventually(t, "the queue is empty", func() error {
			if n := a.waiting(a.queue); n != 0 {
				return fmt.Errorf("%d messages are left", n)
			}
			return nil
		})
		failed := s.parked()
		if len(failed) != 1 || failed[0].key != "too large" || failed[0].state != "failed" || !strings.Contains(failed[0].reason, "bytes") {
			t.Errorf("parked %+v, want the large one, failed, with its reason", failed)
		}
	})
}

// parked are the messages that have ended otherwise than sent, or wait.
func (s *shop) parked() (rows []parkedRow) {
	s.t.Helper()
	found, err := s.db.QueryContext(s.t.Context(), "SELECT key, state, error FROM "+s.parkedTable)
	if err != nil {
		s.t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var row parkedRow
		if err := found.Scan(&row.key, &row.state, &row.reason); err != nil {
			s.t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if err := found.Err(); err != nil {
		s.t.Fatal(err)
	}
	return rows
}

type parkedRow struct{ key, state, reason string }

func (s *shop) inTx(do func(*sql.Tx) error) {
	s.t.Helper()
	tx, err := s.db.BeginTx(s.t.Context(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer tx.Rollback()
	if err := do(tx); err != nil {
		s.t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		s.t.Fatal(err)
	}
}

func TestDuplicateIsASuccess(t *testing.T) {
	a := newAWS(t)
	e := event.OrderCreated{OrderID: uuid.NewString(), CustomerID: "c1", AmountCents: 4999, CreatedAt: "2026-07-30T20:27:10.628Z"}
	body, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	const copies = 30
	for range copies {
		a.send(string(body))
	}
	a.consume()
	duplicates := 0
	for range copies {
		if <-a.handled {
			duplicates++
		}
	}
	if duplicates != copies-1 {
		t.Errorf("%d of %d copies were duplicates", duplicates, copies)
	}
	a.expectFulfilled([]order.Order{{ID: e.OrderID, CustomerID: e.CustomerID, AmountCents: e.AmountCents, CreatedAt: e.CreatedAt}})
	eventually(t, "the queue is empty", func() error {
		if n := a.waiting(a.queue); n != 0 {
			return fmt.Errorf("%d messages are left", n)
		}
		return nil
	})
	if n := a.waiting(cloud.DeadLetterQueue(a.queue)); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// DynamoDB throttles, answers too late or fails: what was not written comes
// again, and what was written is not written twice.
func TestFulfilmentUnderFaults(t *testing.T) {
	const orders = 60
	a := newAWS(t)
	proxy := awsproxy.New(a.server.Endpoint, testsize.Seed(t))
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	a.dynamo = dynamodb.NewFromConfig(awsemulator.Config(front.URL), func(o *dynamodb.Options) { o.RetryMaxAttempts = 1 })
	duplicates := 0
	var err error
	a.fulfilment, err = fulfilment.New(fulfilment.Config{
		Client: a.dynamo, Table: a.table, Logger: quiet(t),
		Handled: func(_ event.OrderCreated, duplicate bool) { a.handled <- duplicate },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range []awsproxy.Fault{awsproxy.Throttle(), awsproxy.LoseAnswer(), awsproxy.Status(http.StatusBadGateway), awsproxy.ResetConnection()} {
		proxy.Add(awsproxy.Rule{Target: "PutItem", Count: 10, Fault: fault})
	}
	var placed []order.Order
	for i := range orders {
		o := order.Order{ID: uuid.NewString(), CustomerID: "c1", AmountCents: int64(i + 1), CreatedAt: "2026-07-30T20:27:10.628Z"}
		m, err := event.OrderCreated{OrderID: o.ID, CustomerID: o.CustomerID, AmountCents: o.AmountCents, CreatedAt: o.CreatedAt}.Message()
		if err != nil {
			t.Fatal(err)
		}
		a.send(string(m.Payload))
		placed = append(placed, o)
	}
	a.consume()
	for range orders {
		if <-a.handled {
			duplicates++
		}
	}
	a.expectFulfilled(placed)
	if duplicates == 0 {
		t.Error("no message came again after its write: the test tests less than it says")
	}
	if n := a.waiting(cloud.DeadLetterQueue(a.queue)); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// What is true of every message spends no receives of any: its service waits.
func TestWhatEveryMessageMeetsIsUnavailable(t *testing.T) {
	a := newAWS(t)
	proxy := awsproxy.New(a.server.Endpoint, testsize.Seed(t))
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	s, err := fulfilment.New(fulfilment.Config{
		Client: dynamodb.NewFromConfig(awsemulator.Config(front.URL), func(o *dynamodb.Options) { o.RetryMaxAttempts = 1 }),
		Table:  a.table, Logger: quiet(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"orderId":"` + uuid.NewString() + `","customerId":"c1","amountCents":1,"createdAt":"2026-07-30T20:27:10.628Z"}`)
	for name, c := range map[string]struct {
		fault awsproxy.Fault
		alarm bool
	}{
		"throttled":       {awsproxy.Throttle(), false},
		"out of order":    {awsproxy.Unavailable(), false},
		"bad gateway":     {awsproxy.Status(http.StatusBadGateway), false},
		"connection lost": {awsproxy.ResetConnection(), false},
		"no right":        {awsproxy.AccessDenied(), true},
		"keys too old":    {awsproxy.ExpiredCredentials(), true},
	} {
		remove := proxy.Add(awsproxy.Rule{Target: "PutItem", Fault: c.fault})
		err := s.Handle(t.Context(), outbox.Message{Type: "order.created", Payload: body})
		if outbox.ClassOf(err) != outbox.ClassUnavailable || outbox.IsAlarm(err) != c.alarm {
			t.Errorf("%s: %v is %v, alarm %v", name, err, outbox.ClassOf(err), outbox.IsAlarm(err))
		}
		remove()
	}
	if err := s.Handle(t.Context(), outbox.Message{Type: "order.created", Payload: body}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestHandleErrors(t *testing.T) {
	a := newAWS(t)
	body := []byte(`{"orderId":"` + uuid.NewString() + `","customerId":"c1","amountCents":1,"createdAt":"2026-07-30T20:27:10.628Z"}`)

	err := a.fulfilment.Handle(t.Context(), outbox.Message{Payload: []byte("hello")})
	if err == nil || outbox.ClassOf(err) != outbox.ClassPermanent {
		t.Errorf("not an event: %v, want a permanent error", err)
	}
	if err := a.fulfilment.Handle(t.Context(), outbox.Message{Type: "order.cancelled", Payload: []byte("hello")}); err != nil {
		t.Errorf("another type: %v, want it left to those whom it concerns", err)
	}
	if all, err := a.fulfilment.All(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("stored %v, %v", all, err)
	}
	if _, err := a.dynamo.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: &a.table}); err != nil {
		t.Fatal(err)
	}
	err = a.fulfilment.Handle(t.Context(), outbox.Message{Type: "order.created", Payload: body})
	if err == nil || outbox.ClassOf(err) != outbox.ClassUnavailable || !outbox.IsAlarm(err) {
		t.Errorf("no table: %v, want it to wait for somebody to create it", err)
	}
	if hint := cloud.Hint(err); !strings.Contains(hint, "orders provision") {
		t.Errorf("no table: hint %q", hint)
	}
}
