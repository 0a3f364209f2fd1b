// Package mailcatcher is an SMTP server that delivers nothing: it keeps every
// mail for the program that started it. The demo shows them, and tests read
// them. It fails on purpose where it is told to.
package mailcatcher

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/emersion/go-smtp"
)

// TLS says how connections are encrypted.
type TLS string

const (
	// NoTLS: not at all. The default.
	NoTLS TLS = "none"
	// StartTLS: as soon as the client asks for it, and before a password.
	StartTLS TLS = "starttls"
	// ImplicitTLS: from the first byte.
	ImplicitTLS TLS = "tls"
)

// Options of a catcher. The zero value is useful.
type Options struct {
	// Addr to listen on. Default: a free port of the loopback interface.
	Addr string
	// TLS, with a certificate of the catcher's own; see Roots. Default: NoTLS.
	TLS TLS
	// User and Password that clients must give. Empty: none.
	User, Password string
	// Keep is how many mails are kept, the newest. Default: 10,000.
	Keep int
}

const (
	// maxMail is how many bytes a mail may have.
	maxMail = 1 << 20
	// idleTimeout ends connections that nobody uses.
	idleTimeout = 5 * time.Minute
)

// Catcher is a running server. It is safe for concurrent use.
type Catcher struct {
	// Addr is where it listens, as host:port.
	Addr string

	options     Options
	certificate tls.Certificate
	server      *smtp.Server
	serving     sync.WaitGroup
	down        atomic.Bool
	connects    atomic.Int64

	mu      sync.Mutex
	mails   []Mail
	count   int
	changed chan struct{}
	hook    Hook
	conns   map[net.Conn]struct{}
}

// Start starts a catcher. Close it when done.
func Start(o Options) (*Catcher, error) {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.Keep == 0 {
		o.Keep = 10_000
	}
	c := &Catcher{options: o, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	c.server = smtp.NewServer(smtp.BackendFunc(func(conn *smtp.Conn) (smtp.Session, error) {
		return &session{catcher: c, conn: conn}, nil
	}))
	c.server.Domain = "mailcatcher"
	c.server.MaxMessageBytes = maxMail
	c.server.MaxRecipients = 100
	c.server.ReadTimeout, c.server.WriteTimeout = idleTimeout, idleTimeout
	c.server.AllowInsecureAuth = o.TLS == NoTLS || o.TLS == ""
	c.server.EnableSMTPUTF8 = true
	// Connections that end in the middle are what this server is made for.
	c.server.ErrorLog = log.New(io.Discard, "", 0)
	if !c.server.AllowInsecureAuth {
		var err error
		if c.certificate, err = newCertificate(); err != nil {
			return nil, err
		}
		c.server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{c.certificate}, MinVersion: tls.VersionTLS12}
	}
	listener, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("mailcatcher: listen: %w", err)
	}
	c.Addr = listener.Addr().String()
	listener = &gate{Listener: listener, catcher: c}
	if o.TLS == ImplicitTLS {
		listener = tls.NewListener(listener, c.server.TLSConfig)
	}
	c.serving.Go(func() {
		if err := c.server.Serve(listener); err != nil && !errors.Is(err, net.ErrClosed) {
			panic(fmt.Sprintf("mailcatcher: serve: %v", err))
		}
	})
	return c, nil
}

// Close stops the server, cuts all connections, and keeps the mails.
func (c *Catcher) Close() {
	_ = c.server.Close()
	c.cutAll()
	c.serving.Wait()
}

// Roots are the certificates that a client must trust to use TLS with this
// catcher; PEM is the same as a file.
func (c *Catcher) Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.PEM())
	return pool
}

// Mails are the mails that are kept, oldest first.
func (c *Catcher) Mails() []Mail {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.mails)
}

// Count is how many mails were caught, those that are not kept any more
// included.
func (c *Catcher) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// Changed returns a channel that the next mail closes.
func (c *Catcher) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *Catcher) keep(m Mail) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mails = append(c.mails, m)
	if extra := len(c.mails) - c.options.Keep; extra > 0 {
		c.mails = slices.Delete(c.mails, 0, extra)
	}
	c.count++
	close(c.changed)
	c.changed = make(chan struct{})
}
