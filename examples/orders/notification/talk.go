package notification

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/postrider/postrider/outbox"
)

// talk is a conversation with the mail server.
type talk struct {
	client  *smtp.Client
	timeout time.Duration
	cut     func() // ends the connection, whatever is waiting for it
}

// connect opens a conversation, up to where a mail can be sent. Whatever goes
// wrong is true of every mail: the server is unavailable.
func (m *mailer) connect(ctx context.Context) (*talk, error) {
	dialer := net.Dialer{Timeout: m.Timeout}
	conn, err := dialer.DialContext(ctx, "tcp", m.Addr)
	if err != nil {
		return nil, classify("connect", err, false)
	}
	t := &talk{timeout: m.Timeout, cut: func() { _ = conn.Close() }}
	done := t.limit(ctx)
	if err := done(m.prepare(t, conn)); err != nil {
		t.cut()
		return nil, classify("connect", err, false)
	}
	return t, nil
}

// limit cuts the conversation when its time is over. The function that it
// returns ends that, and says of an error whether that was the reason.
func (t *talk) limit(ctx context.Context) (done func(error) error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	stop := context.AfterFunc(ctx, t.cut)
	return func(err error) error {
		defer cancel()
		stop()
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return err
	}
}

// prepare greets, encrypts and logs in.
func (m *mailer) prepare(t *talk, conn net.Conn) (err error) {
	settings := &tls.Config{ServerName: m.host, RootCAs: m.Roots, MinVersion: tls.VersionTLS12}
	switch m.TLS {
	case StartTLS:
		t.client, err = smtp.NewClientStartTLS(conn, settings)
	case ImplicitTLS:
		t.client = smtp.NewClient(tls.Client(conn, settings))
	default:
		t.client = smtp.NewClient(conn)
	}
	if err != nil {
		return err
	}
	if err := t.client.Hello(m.Hello); err != nil {
		return err
	}
	if m.User == "" {
		return nil
	}
	switch {
	case t.client.SupportsAuth(sasl.Plain):
		err = t.client.Auth(sasl.NewPlainClient("", m.User, m.Password.Reveal()))
	case t.client.SupportsAuth(sasl.Login):
		err = t.client.Auth(sasl.NewLoginClient(m.User, m.Password.Reveal()))
	default:
		err = errors.New("the mail server offers neither PLAIN nor LOGIN")
	}
	if err != nil {
		return fmt.Errorf("log in as %q: %w", m.User, err)
	}
	return nil
}

// send hands one mail over. nil means that the server has accepted it; after an
// error it may have, too, if only its answer was lost.
func (t *talk) send(ctx context.Context, l letter) error {
	done := t.limit(ctx)
	step, aboutThisMail, err := t.hand(l)
	if err = done(err); err != nil {
		return classify(step, err, aboutThisMail)
	}
	return nil
}

// hand says with an error at which step it was, and whether a refusal there is
// about this mail alone.
func (t *talk) hand(l letter) (step string, aboutThisMail bool, err error) {
	if err := t.client.Mail(l.from, nil); err != nil {
		return "sender " + l.from, false, err
	}
	if err := t.client.Rcpt(l.to, nil); err != nil {
		return "recipient " + l.to, true, err
	}
	data, err := t.client.Data()
	if err != nil {
		return "data", true, err
	}
	if _, err := data.Write(l.raw); err != nil {
		return "data", true, err
	}
	return "data", true, data.Close()
}

// quitTimeout bounds the good-bye.
const quitTimeout = 2 * time.Second

// close says good-bye if the server is there to hear it. What is sent is sent.
func (t *talk) close() {
	t.timeout = min(t.timeout, quitTimeout)
	done := t.limit(context.Background())
	_ = done(t.client.Quit())
	t.cut()
}

// everybody are refusals that are true of every mail wherever they are said:
// commands that the server does not know or does not want now, and logging in.
var everybody = []int{500, 502, 503, 504, 523, 530, 534, 535, 538}

// classify gives an error of the mail server its class.
func classify(step string, err error, aboutThisMail bool) error {
	wrapped := fmt.Errorf("mail server: %s: %w", step, err)
	refusal, answered := errors.AsType[*smtp.SMTPError](err)
	if !answered {
		return silence(wrapped)
	}
	switch {
	case refusal.Code == 421: // it closes the connection
		return outbox.Unavailable(wrapped)
	case refusal.Temporary() && aboutThisMail:
		return outbox.Retryable(wrapped)
	case refusal.Temporary():
		return outbox.Unavailable(wrapped)
	case aboutThisMail && !slices.Contains(everybody, refusal.Code):
		return outbox.Permanent(wrapped)
	}
	return outbox.Refused(wrapped)
}

// silence classifies what is no answer of the server. The network's troubles
// pass; what is left (no TLS, another's certificate, no way to log in) does not.
func silence(err error) error {
	network, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded) || ok && network.Timeout():
		return outbox.TimedOut(err)
	case ok || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed):
		return outbox.Unavailable(err)
	}
	return outbox.Refused(err)
}
