package services

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/uuid"

	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/fulfilment"
	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/test/internal/programs"
)

// fulfilmentService has its own tests elsewhere; here it is one of four.
const fulfilmentService = "fulfilment"

// campaign is the whole reference system, each part a process of its own:
// order service, relay, topic and four services.
type campaign struct {
	*rig
	env     []string
	db      string
	topic   string
	table   string
	running map[string]*process
	shop    atomic.Value // base URL of the order service
}

func newCampaign(t testing.TB, seed int64) *campaign {
	t.Helper()
	r := newRig(t, seed)
	c := &campaign{rig: r, db: pgtest.Database(t), topic: "orders-" + r.name, table: "fulfilments-" + r.name, running: map[string]*process{}}
	others := make([]string, len(allServices))
	for i, service := range allServices {
		others[i] = r.queue(service)
	}
	c.env = r.environment("ORDERS_DB="+c.db, "ORDERS_ADDR=127.0.0.1:0",
		"ORDERS_TOPIC="+c.topic, "ORDERS_TABLE="+c.table,
		"ORDERS_QUEUE="+r.queue(fulfilmentService), "ORDERS_OTHER_QUEUES="+strings.Join(others, ","),
		"ORDERS_FULFILMENT_ADDR=127.0.0.1:0", "ORDERS_FULFILMENT_VISIBILITY_TIMEOUT=2s", "ORDERS_FULFILMENT_WAIT_TIME=1s", "ORDERS_FULFILMENT_RETRY=1s")
	if code, _, said := programs.Run(t, c.env, programs.Postrider, "migrate", "up", "--db", c.db); code != 0 {
		t.Fatalf("migrate: exit code %d: %s", code, said)
	}
	if code, said := run(t, c.env, "provision"); code != 0 {
		t.Fatalf("provision: exit code %d: %s", code, said)
	}
	for part := range c.parts() {
		c.start(part)
	}
	return c
}

const (
	orderService = "order service"
	theRelay     = "relay"
)

// parts are the commands of the parts.
func (c *campaign) parts() map[string][]string {
	parts := map[string][]string{
		orderService: {programs.Orders, "serve"},
		theRelay:     {programs.Postrider, "relay", "--db", c.db, "--to", "sns://" + c.topic, "--http", "off", "--lease", "2s"},
	}
	for _, service := range append([]string{fulfilmentService}, allServices...) {
		parts[service] = []string{programs.Orders, "consume", service}
	}
	return parts
}

func (c *campaign) start(part string) {
	c.t.Helper()
	command := c.parts()[part]
	p := &process{c.t, programs.Start(c.t, c.env, command[0], command[1:]...)}
	if part == orderService {
		c.shop.Store(p.Said(" url="))
	}
	c.running[part] = p
}

// replace kills the part as kill -9 does, and starts it again.
func (c *campaign) replace(part string) {
	c.t.Helper()
	c.running[part].Kill()
	c.start(part)
}

// place orders one, as a careful client does: with a key, and again until there
// is an answer.
func (c *campaign) place(wish event.OrderCreated) (placed event.OrderCreated, err error) {
	body := fmt.Sprintf(`{"customerId":%q,"amountCents":%d}`, wish.CustomerID, wish.AmountCents)
	key := uuid.NewString()
	err = programs.Wait(c.t.Context(), programs.Patience, nil, func() error {
		request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.shop.Load().(string)+"/orders", strings.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != http.StatusCreated {
			err = fmt.Errorf("status %d: %s", response.StatusCode, answer)
		}
		var o order.Order
		if err == nil {
			err = json.Unmarshal(answer, &o)
		}
		placed = event.OrderCreated{OrderID: o.ID, CustomerID: o.CustomerID, AmountCents: o.AmountCents, CreatedAt: o.CreatedAt}
		return err
	})
	if err != nil {
		return placed, fmt.Errorf("place an order: %w", err)
	}
	if placed.CustomerID != wish.CustomerID || placed.AmountCents != wish.AmountCents {
		return placed, fmt.Errorf("placed %+v, wished %+v", placed, wish)
	}
	return placed, nil
}

// placeAll places the orders, several at a time, and returns them as they were
// placed once wait is called.
func (c *campaign) placeAll(wishes []event.OrderCreated) (wait func() []event.OrderCreated) {
	const clients = 4
	placed, errs := make([]event.OrderCreated, len(wishes)), make([]error, len(wishes))
	var working sync.WaitGroup
	for client := range clients {
		working.Go(func() {
			for i := client; i < len(wishes); i += clients {
				placed[i], errs[i] = c.place(wishes[i])
			}
		})
	}
	return func() []event.OrderCreated {
		c.t.Helper()
		working.Wait()
		if err := errors.Join(errs...); err != nil {
			c.t.Fatal(err)
		}
		return placed
	}
}

// checkFulfilments wants the fulfilments of these orders and no others.
func (c *campaign) checkFulfilments(orders []event.OrderCreated) {
	c.t.Helper()
	s, err := fulfilment.New(fulfilment.Config{Client: dynamodb.NewFromConfig(awsemulator.Config(c.proxy.URL)), Table: c.table})
	if err != nil {
		c.t.Fatal(err)
	}
	all, err := s.All(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	found := map[string]fulfilment.Fulfilment{}
	for _, f := range all {
		found[f.OrderID] = f
	}
	if len(all) != len(orders) || len(found) != len(orders) {
		c.t.Errorf("%d fulfilments of %d orders, want %d", len(all), len(found), len(orders))
	}
	for _, e := range orders {
		want := fulfilment.Fulfilment{OrderID: e.OrderID, CustomerID: e.CustomerID, AmountCents: e.AmountCents, Status: fulfilment.StatusReceived, CreatedAt: e.CreatedAt}
		if found[e.OrderID] != want {
			c.t.Errorf("order %s: fulfilment %+v", e.OrderID, found[e.OrderID])
		}
	}
}

// Orders go through the whole system while every message is delivered twice,
// notification is killed again and again, and so, in turn, is each other part.
// Every order has every effect once; a mail may be sent again only if
// notification was killed between sending and recording.
func TestCampaign(t *testing.T) {
	t.Parallel()
	n, kills := testsize.Pick(80, 1000), testsize.Pick(3, 10)
	seed := testsize.Seed(t)
	random := testsize.Rand(seed, "kills")
	c := newCampaign(t, seed)
	services := append([]string{fulfilmentService}, allServices...)
	for _, service := range services {
		c.withoutLimit(service) // a kill spends a receive of all that the process has
	}
	c.proxy.Add(awsproxy.Rule{Target: "ReceiveMessage", Fault: awsproxy.DeliverTwice()})
	placed := c.placeAll(c.orders(seed, n))
	others := []string{theRelay, fulfilmentService, orderService, analyticsService, searchService}
	for i := range kills {
		enough := min((i*n+random.IntN(n))/kills, n-1)
		eventually(t, "some mails", func() error {
			now := c.catcher.Count()
			return programs.Unless(now >= enough, "%d of %d", now, enough)
		})
		c.replace(notificationService)
		other := others[i%len(others)]
		c.replace(other)
		t.Logf("killed notification and %s when %d of %d mails were sent", other, enough, n)
	}
	orders := placed()
	eventually(t, "all orders are everywhere", func() error {
		total := int(c.running[analyticsService].total().Orders)
		return programs.Unless(total >= n && c.catcher.Count() >= n, "analytics has %d, there are %d mails", total, c.catcher.Count())
	})
	for _, service := range services {
		c.drained(service)
	}
	c.checkFulfilments(orders)
	c.checkMails(orders, kills)
	c.running[analyticsService].checkAnalytics(orders)
	c.running[searchService].checkSearch(orders)
	for _, service := range services {
		if dead := c.dead(service); dead > 0 {
			t.Errorf("%s has %d dead letters", service, dead)
		}
	}
	for part, p := range c.running {
		if code := p.Terminate(); code != 0 {
			t.Errorf("%s: exit code %d", part, code)
		}
	}
}
