package notification

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/postrider/postrider/config"
)

// TLS says how the connection to the mail server is encrypted.
type TLS string

const (
	// StartTLS begins in clear text and turns to TLS before anything of value is
	// said; a server that cannot is refused. Usual at port 587. The default.
	StartTLS TLS = "starttls"
	// ImplicitTLS is TLS from the first byte. Usual at port 465.
	ImplicitTLS TLS = "tls"
	// NoTLS sends everything in clear text; a password only to this machine
	// itself.
	NoTLS TLS = "none"
)

// Server is the mail server that mails are handed to.
type Server struct {
	// Addr is host:port. Required.
	Addr string
	// TLS is how the connection is encrypted. Default: StartTLS.
	TLS TLS
	// Roots are trusted to sign the server's certificate. nil: the system's.
	Roots *x509.CertPool
	// User and Password are for servers that ask for them. Empty: none.
	User     string
	Password config.Secret
	// Timeout bounds connecting, with TLS and logging in, and handing one mail
	// over, each. Default: 30 s.
	Timeout time.Duration
	// Hello is the name by which the service introduces itself. Default: the
	// machine's.
	Hello string
}

// mailer connects to the server, once for each mail.
type mailer struct {
	Server
	host string
}

func newMailer(c Server) (*mailer, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("notification: "+format, args...)) }
	if c.TLS == "" {
		c.TLS = StartTLS
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.Hello == "" {
		c.Hello = "localhost"
		if name, err := os.Hostname(); err == nil && checkAddress("x@"+name) == nil {
			c.Hello = name
		}
	}
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil || host == "" || port == "" {
		wrong("the mail server's address %q is not host:port", c.Addr)
	}
	if !slices.Contains([]TLS{NoTLS, StartTLS, ImplicitTLS}, c.TLS) {
		wrong("TLS %q is not one of none, starttls and tls", string(c.TLS))
	}
	if c.Timeout < 0 {
		wrong("the time-out %v is negative", c.Timeout)
	}
	if (c.User == "") != c.Password.IsZero() {
		wrong("of user and password for the mail server one is missing")
	}
	if !c.Password.IsZero() && c.TLS == NoTLS && !loopback(host) {
		wrong("without TLS the password would go to %s in clear text: use starttls or tls", host)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &mailer{Server: c, host: host}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
