package services

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/inboxdb"
	"github.com/postrider/postrider/examples/orders/mailcatcher"
	"github.com/postrider/postrider/examples/orders/notification"
	"github.com/postrider/postrider/examples/orders/service"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/test/internal/programs"
)

// An outage of the mail server lasts longer than all the receives of a message
// would take, were they spent: no message ends in the dead-letter queue, and all
// mails go out once it is back.
func TestMailServerAway(t *testing.T) {
	t.Parallel()
	const n = 40
	seed := testsize.Seed(t)
	r := newRig(t, seed)
	where, err := config.ParseDatabase("sqlite:" + filepath.Join(r.dir, "notification.db"))
	if err != nil {
		t.Fatal(err)
	}
	db, err := inboxdb.Open(t.Context(), where, inboxdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := notification.New(notification.Config{
		DB: db, Server: notification.Server{Addr: r.catcher.Addr, TLS: notification.NoTLS}, Logger: quiet(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	// After five failures in a row, a second each, a message would be dead.
	consumer, err := sqsbroker.NewConsumer(sqsbroker.ConsumerConfig{
		Client: r.sqs, Queue: r.queue(notificationService), Logger: quiet(t),
		WaitTime: time.Second, VisibilityTimeout: 2 * time.Second, RetryInitial: time.Second, RetryMax: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	running, err := service.New(service.Config{Name: notificationService, Consumer: consumer, Handle: s.Handle, Logger: quiet(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := running.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer done.Wait()
	defer stop()

	orders := r.orders(seed, n)
	r.send(notificationService, orders[:n/2]...)
	r.drained(notificationService)
	r.catcher.Down()
	before, begin := r.catcher.Connects(), time.Now()
	r.send(notificationService, orders[n/2:]...)
	eventually(t, "the outage has lasted", func() error {
		return programs.Unless(time.Since(begin) > 10*time.Second && r.catcher.Connects() > before+100, "%v, %d attempts", time.Since(begin), r.catcher.Connects()-before)
	})
	if w := running.Waiting(); w != n/2 {
		t.Errorf("%d messages wait", w)
	}
	r.catcher.Up()
	r.drained(notificationService)
	r.checkMails(orders, 0)
	if dead := r.dead(notificationService); dead > 0 {
		t.Errorf("%d dead letters", dead)
	}
}

// A database that is away costs no receives, and is no reason to restart its
// services.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	const n = 40
	seed := testsize.Seed(t)
	r := newRig(t, seed)
	server := pgtest.Server(t)
	orders := r.orders(seed, n)
	services := []string{notificationService, analyticsService}
	running := map[string]*process{}
	for _, s := range services {
		running[s] = r.start(s, "ORDERS_NOTIFICATION_DB="+server.URL("postgres"), "ORDERS_ANALYTICS_DB="+server.URL("postgres"))
		r.send(s, orders[:n/2]...)
		r.drained(s)
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for _, s := range services {
		r.send(s, orders[n/2:]...)
	}
	for _, s := range services {
		running[s].Said("its messages wait")
		eventually(t, s+" waits through the outage", func() error {
			var body struct{ Status string }
			if err := running[s].get("/healthz", &body); err != nil || body.Status != "waiting" {
				t.Fatalf("%s: %+v, %v", s, body, err)
			}
			// Five tries, a second each, would have been spent.
			return programs.Unless(time.Since(begin) > 10*time.Second, "it has lasted %v", time.Since(begin))
		})
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range services {
		r.drained(s)
		if dead := r.dead(s); dead > 0 {
			t.Errorf("%s has %d dead letters", s, dead)
		}
	}
	r.checkMails(orders, 0)
	running[analyticsService].checkAnalytics(orders)
}

// Handlers that wait for the database, however many, leave room for readers.
func TestReadersBesideBusyHandlers(t *testing.T) {
	t.Parallel()
	const handlers = 40
	seed := testsize.Seed(t)
	r := newRig(t, seed)
	url := pgtest.Database(t)
	orders := r.orders(seed, handlers)
	p := r.start(analyticsService, "ORDERS_ANALYTICS_DB="+url, fmt.Sprintf("ORDERS_ANALYTICS_HANDLERS=%d", handlers))
	p.Said("started")
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	// Whoever counts waits for this one; whoever reads does not.
	if _, err := conn.Exec(t.Context(), `BEGIN; LOCK TABLE analytics_minutes IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	r.send(analyticsService, orders...)
	eventually(t, "handlers wait", func() error {
		var waiting int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'analytics_minutes'::regclass`).Scan(&waiting)
		return cmp.Or(err, programs.Unless(waiting == handlers, "%d do", waiting))
	})
	if sums := p.total(); sums.Orders != 0 {
		t.Errorf("%d orders are counted", sums.Orders)
	}
	if _, err := conn.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	r.drained(analyticsService)
	p.checkAnalytics(orders)
}

// What one service cannot handle ends in its own dead-letter queue, after five
// tries; the others have it, and everything else flows on.
func TestPoison(t *testing.T) {
	t.Parallel()
	const n = 30
	seed := testsize.Seed(t)
	r := newRig(t, seed)
	orders := r.orders(seed, n)
	unloved := orders[n/2]
	var tries int
	var mu sync.Mutex
	r.catcher.SetHook(func(stage mailcatcher.Stage, m mailcatcher.Mail) *mailcatcher.Refusal {
		mu.Lock()
		defer mu.Unlock()
		if stage == mailcatcher.AtRecipient && m.To[0] == "unloved@customers.example" {
			tries++
			return &mailcatcher.Refusal{Code: 550, Message: "no such user"}
		}
		return nil
	})
	unloved.CustomerID = "unloved"
	orders[n/2] = unloved
	running := map[string]*process{}
	for _, s := range allServices {
		running[s] = r.start(s)
		r.send(s, orders...)
	}
	for _, s := range allServices {
		r.drained(s)
	}
	running[analyticsService].checkAnalytics(orders)
	running[searchService].checkSearch(orders)
	r.checkMails(append(orders[:n/2:n/2], orders[n/2+1:]...), 0)
	for _, s := range allServices {
		want := 0
		if s == notificationService {
			want = 1
		}
		if dead := r.dead(s); dead != want {
			t.Errorf("%s has %d dead letters, want %d", s, dead, want)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if tries != cloud.MaxReceives {
		t.Errorf("%d tries", tries)
	}
}

// A message that nobody can read ends in the dead-letter queue of each service.
func TestUndecodable(t *testing.T) {
	t.Parallel()
	r := newRig(t, testsize.Seed(t))
	orders := r.orders(1, 5)
	for _, s := range allServices {
		_, err := r.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: r.url(r.queue(s)), MessageBody: aws.String(`{"orderId":"what`)})
		if err != nil {
			t.Fatal(err)
		}
		r.start(s)
		r.send(s, orders...)
	}
	for _, s := range allServices {
		r.drained(s)
		if dead := r.dead(s); dead != 1 {
			t.Errorf("%s has %d dead letters", s, dead)
		}
	}
	r.checkMails(orders, 0)
}

// A greylisting server (4xx for a recipient) gets the mail again, later.
func TestRefusedForNow(t *testing.T) {
	t.Parallel()
	r := newRig(t, testsize.Seed(t))
	orders := r.orders(1, 5)
	refused := map[string]bool{}
	var mu sync.Mutex
	r.catcher.SetHook(func(stage mailcatcher.Stage, m mailcatcher.Mail) *mailcatcher.Refusal {
		mu.Lock()
		defer mu.Unlock()
		if stage == mailcatcher.AtRecipient && !refused[m.To[0]] {
			refused[m.To[0]] = true
			return &mailcatcher.Refusal{Code: 450, Message: "come again"}
		}
		return nil
	})
	r.start(notificationService)
	r.send(notificationService, orders...)
	r.drained(notificationService)
	r.checkMails(orders, 0)
	if dead := r.dead(notificationService); dead > 0 {
		t.Errorf("%d dead letters", dead)
	}
}

// The services answer how they are, as long as they run.
func TestHealth(t *testing.T) {
	t.Parallel()
	r := newRig(t, testsize.Seed(t))
	for _, s := range allServices {
		p := r.start(s)
		var body struct{ Status string }
		if err := p.get("/healthz", &body); err != nil || body.Status != "ok" {
			t.Errorf("%s: %+v, %v", s, body, err)
		}
		addr := strings.TrimPrefix(p.Said(" url="), "http://")
		if code, said := run(t, r.environment(), "health", addr); code != 0 {
			t.Errorf("%s: exit code %d: %s", s, code, said)
		}
		p.Stop()
		if code, _ := run(t, r.environment(), "health", addr); code == 0 {
			t.Errorf("%s is healthy after its end", s)
		}
	}
}

// While the mail server is away notification is well, and waits.
func TestWaitingIsNoIllness(t *testing.T) {
	t.Parallel()
	r := newRig(t, testsize.Seed(t))
	r.catcher.Down()
	p := r.start(notificationService)
	orders := r.orders(1, 3)
	r.send(notificationService, orders...)
	status := func(want string) {
		t.Helper()
		eventually(t, "it is "+want, func() error {
			var body struct{ Status string }
			err := p.get("/healthz", &body)
			return programs.Unless(err == nil && body.Status == want, "%+v, %v", body, err)
		})
	}
	status("waiting")
	// A stop does not wait for the mail server.
	begin := time.Now()
	p.Stop()
	t.Logf("stopped in %v", time.Since(begin))
	r.catcher.Up()
	p = r.start(notificationService)
	r.drained(notificationService)
	status("ok")
	r.checkMails(orders, 0)
}
