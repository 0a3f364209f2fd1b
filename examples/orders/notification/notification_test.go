package notification

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/mail"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/inboxdb"
	"github.com/postrider/postrider/examples/orders/mailcatcher"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
)

// rig is a service with a mail server and a database of the test's own.
type rig struct {
	t       testing.TB
	catcher *mailcatcher.Catcher
	db      *inboxdb.DB
	config  Config
	log     *bytes.Buffer
}

func newRig(t testing.TB, url string, o mailcatcher.Options) *rig {
	t.Helper()
	catcher, err := mailcatcher.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(catcher.Close)
	if url == "" {
		url = "sqlite:" + filepath.Join(t.TempDir(), "notification.db")
	}
	where, err := config.ParseDatabase(url)
	if err != nil {
		t.Fatal(err)
	}
	db, err := inboxdb.Open(t.Context(), where, inboxdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, catcher: catcher, db: db, log: &bytes.Buffer{}}
	r.config = Config{
		DB:     db,
		Server: Server{Addr: catcher.Addr, TLS: TLS(o.TLS), User: o.User, Password: config.NewSecret(o.Password), Roots: catcher.Roots()},
		Logger: slog.New(slog.NewTextHandler(r.log, nil)),
	}
	if o.TLS == "" {
		r.config.Server.TLS = NoTLS
	}
	return r
}

func (r *rig) service() *Service {
	r.t.Helper()
	s, err := New(r.config)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func newOrder() event.OrderCreated {
	return event.OrderCreated{OrderID: uuid.NewString(), CustomerID: "c1", AmountCents: 4999, CreatedAt: "2026-07-30T20:27:10.628Z"}
}

func announce(t testing.TB, e event.OrderCreated) outbox.Message {
	t.Helper()
	m, err := e.Message()
	if err != nil {
		t.Fatal(err)
	}
	m.ID = uuid.New()
	return m
}

func TestMail(t *testing.T) {
	r := newRig(t, "", mailcatcher.Options{})
	var told []bool
	r.config.Handled = func(_ event.OrderCreated, duplicate bool) { told = append(told, duplicate) }
	s, e := r.service(), newOrder()
	for range 2 {
		if err := s.Handle(t.Context(), announce(t, e)); err != nil {
			t.Fatal(err)
		}
	}
	mails := r.catcher.Mails()
	if len(mails) != 1 || len(told) != 2 || told[0] || !told[1] {
		t.Fatalf("%d mails, duplicates %v", len(mails), told)
	}
	m := mails[0]
	if m.From != "orders@shop.example" || len(m.To) != 1 || m.To[0] != "c1@customers.example" || m.TLS || m.User != "" {
		t.Errorf("envelope %+v", m)
	}
	if m.MessageID != "order-"+e.OrderID+"@shop.example" || m.Subject != "We have your order "+e.OrderID || m.Sender.Name != "The shop" ||
		len(m.Names) != 1 || m.Names[0] != (mail.Address{Name: "c1", Address: "c1@customers.example"}) {
		t.Errorf("headers %+v", m.Header)
	}
	date, err := mail.ParseDate(strings.Join(m.Header["Date"], ""))
	if err != nil || !date.Equal(time.Date(2026, 7, 30, 20, 27, 10, 0, time.UTC)) {
		t.Errorf("date %v, %v", date, err)
	}
	for _, body := range []string{m.Text, m.HTML} {
		for _, want := range []string{"c1", e.OrderID, "49.99", "30 July 2026, 20:27 UTC"} {
			if !strings.Contains(body, want) {
				t.Errorf("%q is missing in\n%s", want, body)
			}
		}
	}
	if len(m.Header["Auto-Submitted"]) != 1 {
		t.Errorf("headers %+v", m.Header)
	}
}

var hostile = map[string]string{
	"header":      "x\r\nBcc: everybody@victim.example\r\n\r\n<b>body</b>",
	"line feed":   "x\nBcc: everybody@victim.example",
	"return":      "x\rBcc: everybody@victim.example",
	"end of mail": "x\r\n.\r\nQUIT\r\n",
	"html":        `<script>alert(1)</script><img src=x onerror=alert(1)>"'&`,
	"template":    "{{.Order}} {{template \"x\"}} ${1}",
	"quotes":      `"\" <victim@victim.example>, "`,
	"addresses":   "a@victim.example, b@victim.example",
	"comment":     "(x) x@y <z@z> ;",
	"encoded":     "=?utf-8?q?=0D=0ABcc:_victim@victim.example?=",
	"unicode":     "Zoë 王小明 עומר 👩‍🚀 ﷽",
	"bidi":        "\u202eevil\u202c \u2066x\u2069",
	"lines":       "a\u2028b\u2029c\u0085d",
	"control":     "a\x00b\x1b[31mc\x7f",
	"invalid":     "a\ufffdb",
	"long":        strings.Repeat("длинно ", 5000),
	"long word":   strings.Repeat("x", 100_000),
	"blank":       " ",
	"invisible":   "\u200b\ufeff",
	"dots":        "..",
	"dot lines":   ".\n..\n",
	"combining":   "Z" + strings.Repeat("\u0301", 1000),
}

// Whoever a customer says they are: one mail, to one address, with no header
// that is not ours, and the name as text.
func TestHostileNames(t *testing.T) {
	r := newRig(t, "", mailcatcher.Options{})
	s := r.service()
	plain := newOrder()
	if err := s.Handle(t.Context(), announce(t, plain)); err != nil {
		t.Fatal(err)
	}
	usual := r.catcher.Mails()[0]
	addresses := map[string]string{}
	for name, customer := range hostile {
		t.Run(name, func(t *testing.T) {
			e := newOrder()
			e.CustomerID = customer
			before := r.catcher.Count()
			if err := s.Handle(t.Context(), announce(t, e)); err != nil {
				t.Fatal(err)
			}
			mails := r.catcher.Mails()[before:]
			if len(mails) != 1 {
				t.Fatalf("%d mails", len(mails))
			}
			m := mails[0]
			if len(m.To) != 1 || !strings.HasSuffix(m.To[0], "@customers.example") || checkAddress(m.To[0]) != nil || strings.Contains(m.To[0], "victim@") {
				t.Errorf("recipients %q", m.To)
			}
			local, _, _ := strings.Cut(m.To[0], "@")
			if len(local) > 64 {
				t.Errorf("local part of %d characters", len(local))
			}
			if other, taken := addresses[m.To[0]]; taken {
				t.Errorf("the address of %q", other)
			}
			addresses[m.To[0]] = customer
			if len(m.Header) != len(usual.Header) {
				t.Errorf("headers %v", m.Header)
			}
			for field := range m.Header {
				if len(m.Header[field]) != 1 || len(usual.Header[field]) != 1 {
					t.Errorf("header %s: %q", field, m.Header[field])
				}
			}
			if len(m.Names) != 1 || m.Names[0].Address != m.To[0] {
				t.Errorf("To: %v", m.Names)
			}
			want := shownName(customer)
			if got := m.Names[0].Name; got != want && strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Errorf("name %q, want %q", got, want)
			}
			if strings.ContainsAny(want, "\r\n\x00") || strings.ContainsRune(want, '\u202e') {
				t.Errorf("shown name %q", want)
			}
			if got, want := strings.Count(m.Text, "\n"), strings.Count(usual.Text, "\n"); got != want {
				t.Errorf("%d lines of text, want %d:\n%s", got, want, m.Text)
			}
			if !strings.Contains(m.Text, "Hello "+want+",") {
				t.Errorf("text\n%s\nwant %q", m.Text, want)
			}
			if strings.Count(m.HTML, "<") != strings.Count(usual.HTML, "<") || strings.Count(m.HTML, `"`) != strings.Count(usual.HTML, `"`) {
				t.Errorf("HTML\n%s", m.HTML)
			}
			for line := range bytes.Lines(m.Raw) {
				if len(line) > 998+2 || bytes.ContainsFunc(line, func(r rune) bool { return r > '~' }) {
					t.Errorf("a line of %d bytes on the wire: %.100q", len(line), line)
				}
			}
		})
	}
}

func TestAddressesDiffer(t *testing.T) {
	at := func(id string) string { return addressAt(id, "d.example") }
	seen := map[string]string{}
	for _, c := range []string{"c1", "C1", "c 1", "c-1", "c.1", "c1 ", "", "-", "ç1", "с1" /* Cyrillic */, strings.Repeat("a", 64), strings.Repeat("a", 65)} {
		a := at(c)
		if other, taken := seen[a]; taken {
			t.Errorf("%q and %q share %s", c, other, a)
		}
		seen[a] = c
		if err := checkAddress(a); err != nil {
			t.Error(err)
		}
	}
	if at("c1") != "c1@d.example" {
		t.Errorf("c1 is %s", at("c1"))
	}
}

func TestDuplicatesAtOnce(t *testing.T) {
	const orders, copies = 10, 4
	for name, url := range map[string]string{"SQLite": "", "PostgreSQL": pgtest.Database(t)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, url, mailcatcher.Options{})
			services := []*Service{r.service(), r.service()}
			var wait sync.WaitGroup
			for range orders {
				m := announce(t, newOrder())
				for i := range copies {
					wait.Go(func() {
						if err := services[i%2].Handle(t.Context(), m); err != nil {
							t.Error(err)
						}
					})
				}
			}
			wait.Wait()
			if n := r.catcher.Count(); n != orders {
				t.Errorf("%d mails for %d orders", n, orders)
			}
		})
	}
}

// The one window: the server has the mail, and the service does not know. It is
// sent again, with the same Message-ID and the same text.
func TestLostAnswerSendsASecondMail(t *testing.T) {
	r := newRig(t, "", mailcatcher.Options{})
	s, m := r.service(), announce(t, newOrder())
	lose := true
	r.catcher.SetHook(func(stage mailcatcher.Stage, _ mailcatcher.Mail) *mailcatcher.Refusal {
		if stage == mailcatcher.AtAnswer && lose {
			lose = false
			r.catcher.Down()
		}
		return nil
	})
	if err := s.Handle(t.Context(), m); err == nil || outbox.ClassOf(err) != outbox.ClassUnavailable {
		t.Fatalf("error %v", err)
	}
	r.catcher.Up()
	for range 3 {
		if err := s.Handle(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	mails := r.catcher.Mails()
	if len(mails) != 2 {
		t.Fatalf("%d mails", len(mails))
	}
	if mails[0].MessageID != mails[1].MessageID || mails[0].Text != mails[1].Text || mails[0].HTML != mails[1].HTML {
		t.Errorf("%s\n%s", mails[0].Raw, mails[1].Raw)
	}
}

// A record that does not commit after the mail was accepted is the same window.
func TestLostRecordSendsASecondMail(t *testing.T) {
	r := newRig(t, "", mailcatcher.Options{})
	s, m := r.service(), announce(t, newOrder())
	ctx, cancel := context.WithCancel(t.Context())
	r.catcher.SetHook(func(stage mailcatcher.Stage, _ mailcatcher.Mail) *mailcatcher.Refusal {
		if stage == mailcatcher.AtAnswer {
			cancel()
		}
		return nil
	})
	if err := s.Handle(ctx, m); err == nil {
		t.Fatal("no error")
	}
	if err := s.Handle(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if n := r.catcher.Count(); n != 2 {
		t.Errorf("%d mails", n)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		stage mailcatcher.Stage
		code  int
		class outbox.Class
		alarm bool
	}{
		{mailcatcher.AtSender, 421, outbox.ClassUnavailable, false},
		{mailcatcher.AtSender, 451, outbox.ClassUnavailable, false},
		{mailcatcher.AtSender, 550, outbox.ClassUnavailable, true},
		{mailcatcher.AtRecipient, 421, outbox.ClassUnavailable, false},
		{mailcatcher.AtRecipient, 450, outbox.ClassRetryable, false},
		{mailcatcher.AtRecipient, 550, outbox.ClassPermanent, false},
		{mailcatcher.AtRecipient, 553, outbox.ClassPermanent, false},
		{mailcatcher.AtRecipient, 530, outbox.ClassUnavailable, true},
		{mailcatcher.AtData, 452, outbox.ClassRetryable, false},
		{mailcatcher.AtData, 554, outbox.ClassPermanent, false},
	} {
		t.Run(fmt.Sprint(c.stage, c.code), func(t *testing.T) {
			r := newRig(t, "", mailcatcher.Options{})
			s, m := r.service(), announce(t, newOrder())
			r.catcher.SetHook(func(stage mailcatcher.Stage, _ mailcatcher.Mail) *mailcatcher.Refusal {
				if stage == c.stage {
					return &mailcatcher.Refusal{Code: c.code, Message: "not\nthis one"}
				}
				return nil
			})
			err := s.Handle(t.Context(), m)
			if err == nil || outbox.ClassOf(err) != c.class || outbox.IsAlarm(err) != c.alarm || r.catcher.Count() != 0 {
				t.Errorf("%v is %v, alarm %v; %d mails", err, outbox.ClassOf(err), outbox.IsAlarm(err), r.catcher.Count())
			}
			r.catcher.SetHook(nil)
			if err := s.Handle(t.Context(), m); err != nil || r.catcher.Count() != 1 {
				t.Errorf("afterwards: %v, %d mails", err, r.catcher.Count())
			}
		})
	}
}

func TestServerAway(t *testing.T) {
	r := newRig(t, "", mailcatcher.Options{})
	s, sent, m := r.service(), announce(t, newOrder()), announce(t, newOrder())
	if err := s.Handle(t.Context(), sent); err != nil {
		t.Fatal(err)
	}
	r.catcher.Down()
	if err := s.Handle(t.Context(), m); err == nil || outbox.ClassOf(err) != outbox.ClassUnavailable || outbox.IsAlarm(err) {
		t.Errorf("error %v", err)
	}
	// What was sent needs no server.
	if err := s.Handle(t.Context(), sent); err != nil {
		t.Error(err)
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = nobody.Close()
	r.config.Server.Addr = nobody.Addr().String()
	if err := r.service().Handle(t.Context(), m); err == nil || outbox.ClassOf(err) != outbox.ClassUnavailable || outbox.IsAlarm(err) {
		t.Errorf("error %v", err)
	}
}

// A server that says nothing holds the service up for no longer than its
// time-out, at whatever stage.
func TestServerHangs(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	r := newRig(t, "", mailcatcher.Options{})
	release := make(chan struct{})
	defer close(release)
	hang := func(at mailcatcher.Stage) func() {
		return func() {
			r.catcher.SetHook(func(stage mailcatcher.Stage, _ mailcatcher.Mail) *mailcatcher.Refusal {
				if stage == at {
					<-release
				}
				return nil
			})
		}
	}
	r.config.Server.Timeout = 200 * time.Millisecond
	for name, prepare := range map[string]func(){
		"greeting":  func() { r.config.Server.Addr = silent.Addr().String() },
		"TLS":       func() { r.config.Server.Addr, r.config.Server.TLS = silent.Addr().String(), ImplicitTLS },
		"sender":    hang(mailcatcher.AtSender),
		"recipient": hang(mailcatcher.AtRecipient),
		"data":      hang(mailcatcher.AtData),
		"answer":    hang(mailcatcher.AtAnswer),
	} {
		r.config.Server.Addr, r.config.Server.TLS = r.catcher.Addr, NoTLS
		r.catcher.SetHook(nil)
		prepare()
		err := r.service().Handle(t.Context(), announce(t, newOrder()))
		if err == nil || outbox.ClassOf(err) != outbox.ClassUnavailable || !outbox.IsTimeout(err) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestTLSAndPassword(t *testing.T) {
	const user, password = "shop", "pässword-7f3a"
	for _, mode := range []mailcatcher.TLS{mailcatcher.NoTLS, mailcatcher.StartTLS, mailcatcher.ImplicitTLS} {
		t.Run(string(mode), func(t *testing.T) {
			r := newRig(t, "", mailcatcher.Options{TLS: mode, User: user, Password: password})
			send := func() error { return r.service().Handle(t.Context(), announce(t, newOrder())) }
			if err := send(); err != nil {
				t.Fatal(err)
			}
			if m := r.catcher.Mails()[0]; m.User != user || m.TLS != (mode != mailcatcher.NoTLS) {
				t.Errorf("came as %q, TLS %v", m.User, m.TLS)
			}
			refused := func(what string) {
				t.Helper()
				err := send()
				if err == nil || outbox.ClassOf(err) != outbox.ClassUnavailable {
					t.Errorf("%s: error %v", what, err)
				} else if !outbox.IsAlarm(err) {
					t.Errorf("%s: no alarm: %v", what, err)
				}
				if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, r.config), password) || strings.Contains(r.log.String(), password) {
					t.Errorf("%s: the password is shown: %v", what, err)
				}
			}
			r.config.Server.Password = config.NewSecret(password + "x")
			refused("wrong password")
			r.config.Server.User, r.config.Server.Password = "", config.Secret{}
			refused("no password")
			r.config.Server.User, r.config.Server.Password = user, config.NewSecret(password)
			if mode != mailcatcher.NoTLS {
				r.config.Server.Roots = nil
				refused("unknown certificate")
				r.config.Server.Roots = r.catcher.Roots()
			}
			if n := r.catcher.Count(); n != 1 {
				t.Errorf("%d mails", n)
			}
		})
	}
}

// A server without STARTTLS gets neither mails nor passwords in clear text.
func TestNoDowngrade(t *testing.T) {
	r := newRig(t, "", mailcatcher.Options{User: "shop", Password: "secret"})
	r.config.Server.TLS = StartTLS
	err := r.service().Handle(t.Context(), announce(t, newOrder()))
	if err == nil || outbox.ClassOf(err) != outbox.ClassUnavailable || !outbox.IsAlarm(err) || r.catcher.Count() != 0 {
		t.Errorf("error %v, %d mails", err, r.catcher.Count())
	}
}

func TestConfigReportsEverything(t *testing.T) {
	_, err := New(Config{Server: Server{Addr: "mail", TLS: "ssl", User: "u", Timeout: -1}, From: mail.Address{Address: "zoë@shop.example"}})
	for _, want := range []string{"DB", "host:port", "starttls", "password", "negative", "ASCII"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v says nothing of %q", err, want)
		}
	}
	r := newRig(t, "", mailcatcher.Options{})
	r.config.Server = Server{Addr: "mail.example:25", TLS: NoTLS, User: "u", Password: config.NewSecret("p")}
	if _, err := New(r.config); err == nil || !strings.Contains(err.Error(), "clear text") {
		t.Errorf("error %v", err)
	}
}

// A domain that no address can have is found at the start, not one dead letter
// later.
func TestDomain(t *testing.T) {
	r := newRig(t, "", mailcatcher.Options{})
	for domain, ok := range map[string]bool{
		"": true, "shop.example": true, "localhost": true,
		"zoë.example": false, "a@b": false, "a b": false, "a..b": false, "a,b": false, "shop.example>": false,
	} {
		r.config.Domain = domain
		if _, err := New(r.config); (err == nil) != ok {
			t.Errorf("%q: error %v", domain, err)
		}
	}
}

func TestWhatIsNoOrder(t *testing.T) {
	r := newRig(t, "", mailcatcher.Options{})
	s := r.service()
	m := announce(t, newOrder())
	m.Payload = []byte("{")
	if err := s.Handle(t.Context(), m); err == nil || outbox.ClassOf(err) != outbox.ClassPermanent {
		t.Errorf("error %v", err)
	}
	m.Type = "order.cancelled"
	if err := s.Handle(t.Context(), m); err != nil {
		t.Errorf("error %v", err)
	}
	if n := r.catcher.Count(); n != 0 {
		t.Errorf("%d mails", n)
	}
}
