package services

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/mailcatcher"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
)

// Notification as it runs in production: TLS, a password from a file or from
// the environment, PostgreSQL. The password is said nowhere.
func TestTLSAndPassword(t *testing.T) {
	t.Parallel()
	const user, password = "shop", "pass word-7f3a=+/"
	for _, tls := range []mailcatcher.TLS{mailcatcher.StartTLS, mailcatcher.ImplicitTLS} {
		t.Run(string(tls), func(t *testing.T) {
			r := newRig(t, testsize.Seed(t))
			catcher, err := mailcatcher.Start(mailcatcher.Options{TLS: tls, User: user, Password: password})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(catcher.Close)
			r.catcher = catcher
			files := t.TempDir()
			ca, secret := filepath.Join(files, "ca.pem"), filepath.Join(files, "password")
			write(t, ca, string(catcher.PEM()))
			write(t, secret, password+"\n")
			settings := []string{"ORDERS_SMTP_TLS=" + string(tls), "ORDERS_SMTP_CA=" + ca, "ORDERS_SMTP_USER=" + user, "ORDERS_LOG_LEVEL=debug"}
			database := "ORDERS_NOTIFICATION_DB=" + pgtest.Database(t)
			orders := r.orders(1, 3)

			fromFile := r.start(notificationService, append(settings, "ORDERS_SMTP_PASSWORD_FILE="+secret, database)...)
			r.send(notificationService, orders[:1]...)
			r.drained(notificationService)
			fromFile.Stop()
			fromVariable := r.start(notificationService, append(settings, "ORDERS_SMTP_PASSWORD="+password, database)...)
			r.send(notificationService, orders[1:2]...)
			r.drained(notificationService)
			fromVariable.Stop()
			wrong := r.start(notificationService, append(settings, "ORDERS_SMTP_PASSWORD="+password+"x", database)...)
			r.send(notificationService, orders[2:]...)
			wrong.Said("alarm=true")
			wrong.Stop()

			r.checkMails(orders[:2], 0)
			for _, m := range catcher.Mails() {
				if !m.TLS || m.User != user {
					t.Errorf("came as %q, TLS %v", m.User, m.TLS)
				}
			}
			for _, p := range []*process{fromFile, fromVariable, wrong} {
				if strings.Contains(p.Output.String(), password) {
					t.Errorf("the password is said: %s", p.Output.String())
				}
			}
		})
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	r := newRig(t, testsize.Seed(t))
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
	files := t.TempDir()
	secret, empty, noIndex := filepath.Join(files, "password"), filepath.Join(files, "empty"), filepath.Join(files, "photos")
	write(t, secret, "7f3a")
	write(t, empty, "")
	if err := os.Mkdir(noIndex, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(noIndex, "photo.jpg"), "x")
	busy := r.start(searchService)
	busy.Said("started")
	for name, c := range map[string]struct {
		args string
		env  string
		code int
		want string
	}{
		"no mail server":          {"notification", "ORDERS_SMTP=", 2, "host:port"},
		"odd mail server":         {"notification --smtp mail", "", 2, "host:port"},
		"odd TLS":                 {"notification --smtp-tls ssl", "", 2, "smtp-tls"},
		"odd sender":              {"notification --from shop", "", 2, "--from"},
		"sender not ASCII":        {"notification --from zoë@shop.example", "", 2, "ASCII"},
		"odd domain":              {"notification --customer-domain a@b", "", 2, "customers' domain"},
		"domain not ASCII":        {"notification", "ORDERS_MAIL_DOMAIN=kühe.example", 2, "customers' domain"},
		"user without password":   {"notification --smtp-user shop", "", 2, "password"},
		"password without user":   {"notification", "ORDERS_SMTP_PASSWORD=7f3a", 2, "user"},
		"password twice":          {"notification --smtp-user shop --smtp-password-file " + secret, "ORDERS_SMTP_PASSWORD=7f3a", 2, "give one"},
		"password in clear text":  {"notification --smtp mail.example:25 --smtp-user shop", "ORDERS_SMTP_PASSWORD=7f3a", 2, "clear text"},
		"no password file":        {"notification --smtp-user shop --smtp-password-file " + files + "/none", "", 2, "no such file"},
		"no certificates":         {"notification --smtp-ca " + empty, "", 2, "no certificates"},
		"odd database":            {"notification --db mongodb://x/y", "", 2, "postgres://"},
		"odd analytics database":  {"analytics --db mongodb://x/y", "", 2, "postgres://"},
		"database away":           {"analytics --db postgres://u@" + nobody + "/db", "", 3, "is PostgreSQL running"},
		"no folder of the file":   {"analytics --db sqlite:" + files + "/none/x.db", "", 1, "none/x.db"},
		"address taken":           {"analytics --addr " + taken.Addr().String(), "", 2, "--addr"},
		"address of notification": {"notification --addr " + taken.Addr().String(), "", 2, "--addr"},
		"no handlers":             {"analytics --handlers 0", "", 2, "--handlers"},
		"odd wait":                {"analytics --wait-time 1500ms", "", 2, "whole seconds"},
		"odd queue":               {"analytics --queue a/b", "", 2, "queue"},
		"index in use":            {"search", "", 1, "another process is using it"},
		"no index":                {"search --index " + noIndex, "", 1, "move it away"},
		"no region":               {"search", "AWS_REGION=", 2, "AWS_REGION"},
	} {
		t.Run(name, func(t *testing.T) {
			env := r.environment()
			if c.env != "" {
				env = append(env, c.env)
			}
			code, said := run(t, env, append([]string{"consume"}, strings.Fields(c.args)...)...)
			if code != c.code || !strings.Contains(said, c.want) || strings.Contains(said, "7f3a") {
				t.Errorf("exit code %d, want %d and %q\n%s", code, c.code, c.want, said)
			}
		})
	}
}

// A service can go without HTTP.
func TestNoAddress(t *testing.T) {
	t.Parallel()
	r := newRig(t, testsize.Seed(t))
	orders := r.orders(1, 3)
	r.start(analyticsService, "ORDERS_ANALYTICS_ADDR=off").Said("started")
	r.send(analyticsService, orders...)
	r.drained(analyticsService)
}

// The queue may appear later than the service.
func TestQueueAppearsLater(t *testing.T) {
	t.Parallel()
	r := newRig(t, testsize.Seed(t))
	r.name = uuid.NewString()
	p := r.start(analyticsService)
	p.Said("cannot look up the queue")
	orders := r.orders(1, 3)
	if err := cloud.EnsureQueue(t.Context(), r.sqs, r.queue(analyticsService)); err != nil {
		t.Fatal(err)
	}
	r.send(analyticsService, orders...)
	r.drained(analyticsService)
	p.checkAnalytics(orders)
}
