package sqsbroker

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/postrider/postrider/outbox"
)

// verdict is what an SQS error code says.
type verdict int

const (
	unknown verdict = iota
	missingQueue
	refused     // credentials, rights, keys: an operator has to act
	unavailable // throttled, or an error of the service
	timedOut
	invalid   // surely about this message
	ambiguous // about this message when an entry has it, about the whole request otherwise
)

// verdicts by code, without prefix and without the suffix Exception. From
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html
// and .../CommonErrors.html, and the error types of the SDK's sqs and sts packages.
var verdicts = map[string]verdict{
	"QueueDoesNotExist": missingQueue,
	"NonExistentQueue":  missingQueue,

	"AccessDenied":               refused,
	"AccountProblem":             refused,
	"AuthFailure":                refused,
	"AuthorizationError":         refused,
	"ExpiredToken":               refused,
	"IncompleteSignature":        refused,
	"InvalidAccessKeyId":         refused,
	"InvalidAddress":             refused, // the queue URL is not one of this endpoint
	"InvalidClientTokenId":       refused,
	"InvalidSecurity":            refused, // plain HTTP where the queue's policy wants TLS
	"InvalidSignature":           refused,
	"KMS.AccessDenied":           refused,
	"KMS.Disabled":               refused,
	"KMS.InvalidKeyUsage":        refused,
	"KMS.InvalidState":           refused,
	"KMS.NotFound":               refused,
	"KMS.OptInRequired":          refused,
	"KmsAccessDenied":            refused,
	"KmsDisabled":                refused,
	"KmsInvalidKeyUsage":         refused,
	"KmsInvalidState":            refused,
	"KmsNotFound":                refused,
	"KmsOptInRequired":           refused,
	"MissingAuthenticationToken": refused,
	"NotAuthorized":              refused,
	"OptInRequired":              refused,
	"RequestExpired":             refused, // the clock is wrong
	"RequestTimeTooSkewed":       refused,
	"SignatureDoesNotMatch":      refused,
	"UnauthorizedOperation":      refused,
	"UnrecognizedClient":         refused,

	"InternalError":      unavailable,
	"InternalFailure":    unavailable,
	"ServiceUnavailable": unavailable,

	"RequestTimeout": timedOut,

	"BatchRequestTooLong":    invalid,
	"InvalidAttributeName":   invalid,
	"InvalidAttributeValue":  invalid,
	"InvalidMessageContents": invalid,

	"InvalidParameterCombination": ambiguous,
	"InvalidParameterValue":       ambiguous,
	"MissingParameter":            ambiguous,
}

func bareCode(code string) string {
	if i := strings.LastIndexByte(code, '#'); i >= 0 {
		code = code[i+1:]
	}
	code, _, _ = strings.Cut(code, ":")
	code = strings.TrimPrefix(code, "AWS.SimpleQueueService.")
	return strings.TrimSuffix(code, "Exception")
}

func verdictOf(code string) verdict {
	if isThrottle(code) {
		return unavailable
	}
	return verdicts[bareCode(code)]
}

// isThrottle knows the codes that the SDK takes for throttling, and SQS's own.
func isThrottle(code string) bool {
	code = bareCode(code)
	switch code {
	case "KMS.Throttling", "KmsThrottled", "OverLimit":
		return true
	}
	_, plain := retry.DefaultThrottleErrorCodes[code]
	_, long := retry.DefaultThrottleErrorCodes[code+"Exception"]
	return plain || long
}

// errorCode returns the code of the error that SQS answered, if it answered one.
func errorCode(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	if entry, ok := errors.AsType[*entryError](err); ok {
		return entry.code
	}
	return ""
}

func isMissingQueue(err error) bool { return verdictOf(errorCode(err)) == missingQueue }

// aboutContents reports whether one message of the request may be the reason
// for which SQS refused all of it.
func aboutContents(err error) bool {
	switch verdictOf(errorCode(err)) {
	case invalid, ambiguous:
		return true
	case unknown:
		status := statusOf(err)
		return errorCode(err) != "" && status >= 400 && status < 500 && status != 401 && status != 403 && status != 429
	default:
		return false
	}
}

func statusOf(err error) int {
	if r, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return r.HTTPStatusCode()
	}
	return 0
}

// classify gives the error of a whole call its class. A missing queue is a
// fixed one here; destinations.missing knows better.
func classify(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ended(ctx, err)
	}
	switch verdictOf(errorCode(err)) {
	case missingQueue, refused:
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
	// No answer, or none that SQS gave.
	return classifyTransport(err)
}

func classifyTransport(err error) error {
	if _, ok := errors.AsType[*v4.SigningError](err); ok {
		return outbox.Refused(err)
	}
	if isCredentials(err) || isCertificate(err) {
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

// entryError is one entry of a batch that SQS answered in Failed.
type entryError struct {
	code, message string
	senderFault   bool
}

func (e *entryError) Error() string {
	side := "service"
	if e.senderFault {
		side = "sender"
	}
	return fmt.Sprintf("%s (%s's fault): %s", e.code, side, e.message)
}

func newEntryError(f types.BatchResultErrorEntry) *entryError {
	return &entryError{code: aws.ToString(f.Code), message: aws.ToString(f.Message), senderFault: f.SenderFault}
}

// classifyEntry gives the error of one entry its class. othersPassed: SQS took
// another entry of the same request, so it is neither away nor refusing us.
// Unknown codes spend attempts, whoever's fault they are said to be: a failed
// message stays visible, and giving up at once is only for what surely is wrong.
func classifyEntry(err error, othersPassed bool) error {
	switch verdictOf(errorCode(err)) {
	case missingQueue, refused:
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
	if entry, ok := errors.AsType[*entryError](err); ok && !entry.senderFault && !othersPassed {
		return outbox.Unavailable(err)
	}
	return outbox.Retryable(err)
}
