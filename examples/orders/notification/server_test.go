package notification

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/mailcatcher"
	"github.com/postrider/postrider/outbox"
)

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
