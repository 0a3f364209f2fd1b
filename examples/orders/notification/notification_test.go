package notification

import (
	"bytes"
	"context"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/mailcatcher"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
)

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
