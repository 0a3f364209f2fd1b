package notification

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/event"
	"github.com/postrider/postrider/examples/orders/inboxdb"
	"github.com/postrider/postrider/examples/orders/mailcatcher"
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
