package awsmsg

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/postrider/postrider/outbox"
)

// Classify gives the error of a whole call its class. A missing destination is
// a fixed one here; the Sender knows better.
func Classify(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ended(ctx, err)
	}
	switch verdictOf(err) {
	case missing, refused:
		return outbox.Refused(err)
	case unavailable:
		return outbox.Unavailable(err)
	case timedOut:
		return outbox.TimedOut(err)
	case invalid:
		return outbox.Permanent(err)
	case ambiguous:
		return outbox.Retryable(err)
	}
	switch status := statusOf(err); {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return outbox.Refused(err)
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		return outbox.TimedOut(err)
	case status == http.StatusTooManyRequests, status >= 500:
		return outbox.Unavailable(err)
	case status >= 400 && errorCode(err) != "" && errorCode(err) != "UnknownError":
		return outbox.Retryable(err)
	}
	// No answer, or none that AWS gave.
	return classifyTransport(err)
}

func classifyTransport(err error) error {
	if _, ok := errors.AsType[*v4.SigningError](err); ok {
		return outbox.Refused(err)
	}
	if isCredentials(err) || isCertificate(err) || isNoSuchHost(err) || isNoEndpoint(err) {
		return outbox.Refused(err)
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && !isLookUp(err) {
		return outbox.TimedOut(err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return outbox.TimedOut(err)
	}
	return outbox.Unavailable(err)
}

// isCredentials: the SDK could not get credentials at all. It says so in words
// only, around whatever its last provider said (often that it cannot reach the
// instance's metadata, on a machine that has none).
func isCredentials(err error) bool {
	return strings.Contains(err.Error(), "get identity: get credentials:")
}

func isCertificate(err error) bool {
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, name := errors.AsType[x509.HostnameError](err)
	_, bad := errors.AsType[x509.CertificateInvalidError](err)
	return authority || name || bad
}

// isNoSuchHost: a name server says that there is no such name. The region or the
// endpoint is written wrong, most likely, and waiting does not mend that.
func isNoSuchHost(err error) bool {
	lookUp, ok := errors.AsType[*net.DNSError](err)
	return ok && lookUp.IsNotFound && !lookUp.IsTimeout && !lookUp.IsTemporary
}

// isNoEndpoint: the SDK makes no address of the region. It says so in words only.
func isNoEndpoint(err error) bool {
	text := err.Error()
	return strings.Contains(text, "failed to bind endpoint params") || strings.Contains(text, "failed to resolve service endpoint")
}

// isLookUp: a name server that does not answer says nothing about the message.
func isLookUp(err error) bool {
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}

// ended is the error of what was not known to be acknowledged when ctx ended.
func ended(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return outbox.TimedOut(err)
	}
	return outbox.Unavailable(err)
}

// EntryError is one entry of a batch that AWS answered in Failed.
type EntryError struct {
	Code, Message string
	SenderFault   bool
}

func (e *EntryError) Error() string {
	side := "service"
	if e.SenderFault {
		side = "sender"
	}
	return fmt.Sprintf("%s (%s's fault): %s", e.Code, side, e.Message)
}

// ClassifyEntry gives the error of one entry its class. othersPassed: AWS took
// another entry of the same request, so it is neither away nor refusing us.
// Unknown codes spend attempts, whoever's fault they are said to be: a failed
// message stays visible, and giving up at once is only for what surely is wrong.
func ClassifyEntry(err error, othersPassed bool) error {
	switch verdictOf(err) {
	case missing, refused:
		return outbox.Refused(err)
	case unavailable:
		if othersPassed && !isThrottle(errorCode(err)) {
			return outbox.Retryable(err)
		}
		return outbox.Unavailable(err)
	case timedOut:
		return outbox.TimedOut(err)
	case invalid, ambiguous:
		return outbox.Permanent(err)
	}
	if entry, ok := errors.AsType[*EntryError](err); ok && !entry.SenderFault && !othersPassed {
		return outbox.Unavailable(err)
	}
	return outbox.Retryable(err)
}
