package services

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/uuid"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/examples/orders/analytics"
	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/mailcatcher"
	"github.com/postrider/postrider/examples/orders/search"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/test/internal/programs"
)

// The services, by the names of their commands.
const (
	notificationService = "notification"
	analyticsService    = "analytics"
	searchService       = "search"
)

var allServices = []string{notificationService, analyticsService, searchService}

// rig is an emulated SQS with queues of the test's own, a proxy through which
// the services reach it, and a mail server.
type rig struct {
	t       testing.TB
	proxy   *awsproxy.Server
	sqs     *sqs.Client // straight to the emulator
	name    string
	dir     string // where the services keep their data
	catcher *mailcatcher.Catcher
}

func newRig(t testing.TB, seed int64) *rig {
	t.Helper()
	emulator := awsemulator.Start()
	t.Cleanup(emulator.Close)
	r := &rig{t: t, sqs: sqs.NewFromConfig(emulator.Config()), name: uuid.NewString(), dir: t.TempDir()}
	var err error
	if r.proxy, err = awsproxy.Start(emulator.Endpoint, seed); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.proxy.Close)
	if r.catcher, err = mailcatcher.Start(mailcatcher.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.catcher.Close)
	for _, service := range allServices {
		if err := cloud.EnsureQueue(t.Context(), r.sqs, r.queue(service)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *rig) queue(service string) string { return service + "-" + r.name }

func (r *rig) url(queue string) *string {
	r.t.Helper()
	out, err := r.sqs.GetQueueUrl(r.t.Context(), &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		r.t.Fatal(err)
	}
	return out.QueueUrl
}

// withoutLimit lets a queue hand its messages out as often as it takes.
func (r *rig) withoutLimit(service string) {
	r.t.Helper()
	dead, err := r.sqs.GetQueueAttributes(r.t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: r.url(cloud.DeadLetterQueue(r.queue(service))), AttributeNames: []types.QueueAttributeName{"QueueArn"},
	})
	if err == nil {
		_, err = r.sqs.SetQueueAttributes(r.t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: r.url(r.queue(service)), Attributes: map[string]string{
			"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"1000"}`, dead.Attributes["QueueArn"]),
		}})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// waiting is how many messages a queue holds, received ones included.
func (r *rig) waiting(queue string) int {
	r.t.Helper()
	out, err := r.sqs.GetQueueAttributes(r.t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: r.url(queue), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	var visible, hidden int
	for name, n := range map[string]*int{"ApproximateNumberOfMessages": &visible, "ApproximateNumberOfMessagesNotVisible": &hidden} {
		if _, err := fmt.Sscan(out.Attributes[name], n); err != nil {
			r.t.Fatal(err)
		}
	}
	return visible + hidden
}

func (r *rig) dead(service string) int { return r.waiting(cloud.DeadLetterQueue(r.queue(service))) }

// drained waits until the service's queue is empty.
func (r *rig) drained(service string) {
	r.t.Helper()
	eventually(r.t, service+" has handled everything", func() error {
		if n := r.waiting(r.queue(service)); n > 0 {
			return fmt.Errorf("%d messages are in its queue", n)
		}
		return nil
	})
}

// orders makes n of them, of a few customers.
func (r *rig) orders(seed int64, n int) []event.OrderCreated {
	random := testsize.Rand(seed, "orders")
	all := make([]event.OrderCreated, n)
	for i := range all {
		all[i] = event.OrderCreated{
			OrderID:     uuid.NewString(),
			CustomerID:  fmt.Sprintf("c%d", random.IntN(9)),
			AmountCents: 1 + random.Int64N(100_000),
			CreatedAt:   time.Date(2026, 7, 30, 20, random.IntN(5), 0, 0, time.UTC).Format(event.TimeLayout),
		}
	}
	return all
}

// send announces the orders to the service, as a relay does.
func (r *rig) send(service string, orders ...event.OrderCreated) {
	r.t.Helper()
	publisher, err := sqsbroker.NewPublisher(sqsbroker.PublisherConfig{Client: r.sqs, Queue: r.queue(service)})
	if err != nil {
		r.t.Fatal(err)
	}
	messages := make([]outbox.Message, len(orders))
	for i, e := range orders {
		if messages[i], err = e.Message(); err != nil {
			r.t.Fatal(err)
		}
		messages[i].ID = uuid.New()
	}
	for i, result := range publisher.Publish(r.t.Context(), messages) {
		if result.Err != nil {
			r.t.Fatalf("send %s: %v", orders[i].OrderID, result.Err)
		}
	}
}

// environment of the services. Messages that a killed one had come again soon.
func (r *rig) environment(extra ...string) []string {
	env := programs.Environment(r.t,
		"AWS_ENDPOINT_URL="+r.proxy.URL, "AWS_REGION="+awsemulator.Region, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"ORDERS_NOTIFICATION_DB=sqlite:"+filepath.Join(r.dir, "notification.db"),
		"ORDERS_ANALYTICS_DB=sqlite:"+filepath.Join(r.dir, "analytics.db"),
		"ORDERS_SEARCH_INDEX="+filepath.Join(r.dir, "index"),
		"ORDERS_SMTP="+r.catcher.Addr, "ORDERS_SMTP_TLS=none")
	for name, service := range map[string]string{"NOTIFICATION": notificationService, "ANALYTICS": analyticsService, "SEARCH": searchService} {
		prefix := "ORDERS_" + name + "_"
		env = append(env, prefix+"QUEUE="+r.queue(service), prefix+"ADDR=127.0.0.1:0",
			prefix+"VISIBILITY_TIMEOUT=2s", prefix+"WAIT_TIME=1s", prefix+"RETRY=1s")
	}
	return append(env, extra...)
}

func (r *rig) start(service string, extra ...string) *process {
	r.t.Helper()
	return &process{r.t, programs.Start(r.t, r.environment(extra...), programs.Orders, "consume", service)}
}

// get reads JSON from a running service.
func (p *process) get(path string, into any) error {
	response, err := http.Get(p.Said(" url=") + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s", response.StatusCode, body)
	}
	return json.Unmarshal(body, into)
}

// total is what analytics has counted.
func (p *process) total() analytics.Sums {
	p.t.Helper()
	var sums analytics.Sums
	if err := p.get("/total", &sums); err != nil {
		p.t.Fatal(err)
	}
	return sums
}

// find searches.
func (p *process) find(text string) search.Result {
	p.t.Helper()
	var result search.Result
	if err := p.get("/search?limit=100&q="+text, &result); err != nil {
		p.t.Fatal(err)
	}
	return result
}

// checkAnalytics compares the sums with the orders.
func (p *process) checkAnalytics(orders []event.OrderCreated) {
	p.t.Helper()
	var cents int64
	customers := map[string]int64{}
	for _, e := range orders {
		cents += e.AmountCents
		customers[e.CustomerID] += e.AmountCents
	}
	if sums := p.total(); sums.Orders != int64(len(orders)) || sums.RevenueCents.Int64() != cents {
		p.t.Errorf("analytics has %d orders and %v cents, want %d and %d", sums.Orders, sums.RevenueCents, len(orders), cents)
	}
	var got struct{ Customers []analytics.Customer }
	if err := p.get("/customers", &got); err != nil {
		p.t.Fatal(err)
	}
	if len(got.Customers) != len(customers) {
		p.t.Errorf("%d customers, want %d", len(got.Customers), len(customers))
	}
	for _, c := range got.Customers {
		if want := customers[c.CustomerID]; c.RevenueCents.Int64() != want {
			p.t.Errorf("customer %s: %v cents, want %d", c.CustomerID, c.RevenueCents, want)
		}
	}
}

// checkSearch looks for each order by its id, and for all of them by customer.
func (p *process) checkSearch(orders []event.OrderCreated) {
	p.t.Helper()
	customers := map[string]uint64{}
	for _, e := range orders {
		customers[e.CustomerID]++
		if r := p.find(e.OrderID); r.Total != 1 || len(r.Orders) != 1 || r.Orders[0] != (search.Order{OrderID: e.OrderID, CustomerID: e.CustomerID, AmountCents: e.AmountCents, CreatedAt: e.CreatedAt}) {
			p.t.Errorf("order %s: found %+v", e.OrderID, r)
		}
	}
	for customer, want := range customers {
		if r := p.find(customer); r.Total != want {
			p.t.Errorf("customer %s: found %d orders, want %d", customer, r.Total, want)
		}
	}
}

// checkMails wants one mail for each order, and for at most so many a second
// copy, which is the same mail again.
func (r *rig) checkMails(orders []event.OrderCreated, doubles int) {
	r.t.Helper()
	mails := map[string][]mailcatcher.Mail{}
	for _, m := range r.catcher.Mails() {
		mails[m.MessageID] = append(mails[m.MessageID], m)
	}
	if len(mails) != len(orders) {
		r.t.Errorf("mails of %d orders, want %d", len(mails), len(orders))
	}
	twice := 0
	for _, e := range orders {
		copies := mails["order-"+e.OrderID+"@shop.example"]
		if len(copies) == 0 {
			r.t.Errorf("order %s: no mail", e.OrderID)
			continue
		}
		twice += len(copies) - 1
		for _, m := range copies {
			if len(m.To) != 1 || m.To[0] != e.CustomerID+"@customers.example" || m.Text != copies[0].Text {
				r.t.Errorf("order %s: a mail to %q", e.OrderID, m.To)
			}
		}
	}
	if twice > doubles {
		r.t.Errorf("%d second copies, %d may be", twice, doubles)
	}
	r.t.Logf("%d second copies of mails", twice)
}

// quiet is a logger whose lines only a failed test shows.
func quiet(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }
