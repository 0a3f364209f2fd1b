package orders

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/postrider/postrider/examples/orders/fulfilment"
	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/test/internal/programs"
)

// Every part is a process of its own, as in production.
func TestProcesses(t *testing.T) {
	const clients, each = 4, 5
	onEach(t, func(t *testing.T, url string) {
		a := newAWS(t)
		env := a.environment()
		for range 2 {
			run(t, env, "orders", "provision").must(t)
		}
		service := programs.Start(t, env, "orders", "serve", "--db", url, "--addr", "127.0.0.1:0")
		s := &shop{t: t, url: service.Said("url=")}
		relay := programs.Start(t, env, "postrider", "relay", "--db", url, "--to", "sqs://"+a.queue, "--http", "off")
		consumer := programs.Start(t, env, "orders", "consume", "fulfilment")

		answers := atOnce(clients, func(client int) (last answer) {
			for range each {
				last = s.post(fmt.Sprintf(`{"customerId":"c%d","amountCents":4999}`, client))
			}
			return last
		})
		for _, placed := range answers {
			if placed.status != http.StatusCreated {
				t.Fatalf("status %d: %s", placed.status, placed.body)
			}
			o := placed.order(t)
			checked := run(t, env, "orders", "check", o.ID, "--timeout", "60s").must(t)
			var got fulfilment.Fulfilment
			if err := json.Unmarshal([]byte(checked.stdout), &got); err != nil {
				t.Fatalf("%s: %v", checked.stdout, err)
			}
			want := fulfilment.Fulfilment{OrderID: o.ID, CustomerID: o.CustomerID, AmountCents: o.AmountCents, Status: "received", CreatedAt: o.CreatedAt}
			if got != want {
				t.Errorf("checked %+v, want %+v", got, want)
			}
		}
		eventually(t, "all orders are fulfilled", func() error {
			all, err := a.fulfilment.All(t.Context())
			if err == nil && len(all) != clients*each {
				err = fmt.Errorf("%d are", len(all))
			}
			return err
		})
		run(t, env, "orders", "check").must(t)
		missing := run(t, env, "orders", "check", uuid.NewString(), "--timeout", "0s")
		if missing.code != 1 || missing.stdout != "" || !strings.Contains(missing.stderr, "there is no fulfilment of order") {
			t.Errorf("an order that never was: %+v", missing)
		}
		for _, part := range []*programs.Process{service, relay, consumer} {
			part.Stop()
		}
	})
}

// A request under way when the service is told to stop gets its answer.
func TestServeFinishesWhatItHas(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "orders.db")
	service := programs.Start(t, environment(t), "orders", "serve", "--db", url, "--addr", "127.0.0.1:0")
	address := strings.TrimPrefix(service.Said("url="), "http://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	head := fmt.Sprintf("POST /orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(valid))
	if _, err := conn.Write([]byte(head)); err != nil {
		t.Fatal(err)
	}
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	reader := bufio.NewReader(conn)
	if got, err := reader.Peek(len(goOn)); err != nil || string(got) != goOn {
		t.Fatalf("answer %q, %v", got, err)
	}
	_, _ = reader.Discard(len(goOn))
	// The service waits for the body. It gets it when it takes nothing new.
	service.End(syscall.SIGTERM)
	eventually(t, "the service takes nothing new", func() error {
		probe, err := net.Dial("tcp", address)
		if err == nil {
			_ = probe.Close()
			return fmt.Errorf("it still does")
		}
		return nil
	})
	if _, err := conn.Write([]byte(valid)); err != nil {
		t.Fatal(err)
	}
	if answer, err := reader.ReadString('\n'); err != nil || !strings.HasPrefix(answer, "HTTP/1.1 201 ") {
		t.Errorf("answer %q, %v", answer, err)
	}
	if code := service.Code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if orders, err := order.List(t.Context(), openDatabase(t, url).DB); err != nil || len(orders) != 1 {
		t.Errorf("stored %v, %v", orders, err)
	}
}

func TestExitCodesAndHints(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	_ = closed.Close()
	sqlite := "sqlite:" + filepath.Join(t.TempDir(), "orders.db")
	away := environment(t, "AWS_ENDPOINT_URL=http://"+nobody, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test")
	a := newAWS(t)
	nothing := append(a.environment(), "ORDERS_QUEUE=none-"+uuid.NewString(), "ORDERS_TABLE=none-"+uuid.NewString())
	for name, c := range map[string]struct {
		env  []string
		args string
		code int
		want string
	}{
		"no command":        {nil, "", 2, "--help"},
		"unknown command":   {nil, "consume accounting", 2, "unexpected argument"},
		"unknown flag":      {nil, "demo --fast", 2, "unknown flag"},
		"negative orders":   {nil, "demo --orders=-1", 2, "--orders"},
		"no database":       {nil, "serve", 2, "--db"},
		"odd database":      {nil, "serve --db mongodb://x/y", 2, "postgres://"},
		"address taken":     {nil, "serve --db " + sqlite + " --addr " + taken.Addr().String(), 2, "--addr"},
		"demo address":      {nil, "demo --addr " + taken.Addr().String(), 2, "--addr"},
		"database away":     {nil, "serve --db postgres://u@" + nobody + "/db", 3, "is PostgreSQL running"},
		"no region":         {nil, "provision", 2, "AWS_REGION"},
		"no credentials":    {environment(t, "AWS_REGION=us-east-1"), "provision", 2, "AWS_ACCESS_KEY_ID"},
		"AWS away":          {away, "provision", 3, "AWS_ENDPOINT_URL is http://" + nobody},
		"check, AWS away":   {away, "check", 3, "AWS_ENDPOINT_URL is http://" + nobody},
		"check, no table":   {nothing, "check", 1, "orders provision"},
		"check, none there": {a.environment(), "check --timeout 0s", 1, "there is no fulfilment of any order"},
		"help":              {nil, "--help", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.env == nil {
				c.env = environment(t)
			}
			got := run(t, c.env, "orders", strings.Fields(c.args)...)
			if got.code != c.code || !strings.Contains(got.stderr, c.want) {
				t.Errorf("exit code %d, want %d and %q\n%s%s", got.code, c.code, c.want, got.stdout, got.stderr)
			}
		})
	}
}
