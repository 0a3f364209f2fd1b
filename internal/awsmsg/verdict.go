package awsmsg

import (
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// verdict is what an error code of AWS says.
type verdict int

const (
	unknown     verdict = iota
	missing             // the destination does not exist
	refused             // credentials, rights, keys: an operator has to act
	unavailable         // throttled, or an error of the service
	timedOut
	invalid   // surely about this message
	ambiguous // about this message when an entry has it, about the whole request otherwise
)

// verdicts by code, without prefix and without the suffix Exception. From
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html,
// https://docs.aws.amazon.com/sns/latest/api/API_PublishBatch.html,
// .../CommonErrors.html, and the error types of the SDK's sqs, sns and sts
// packages.
var verdicts = map[string]verdict{
	"NonExistentQueue":  missing,
	"NotFound":          missing,
	"QueueDoesNotExist": missing,
	"ResourceNotFound":  missing, // a table of DynamoDB

	"AccessDenied":               refused,
	"AccountProblem":             refused,
	"AuthFailure":                refused,
	"AuthorizationError":         refused,
	"ExpiredToken":               refused,
	"IncompleteSignature":        refused,
	"InvalidAccessKeyId":         refused,
	"InvalidAddress":             refused, // the queue URL is not one of this endpoint
	"InvalidClientTokenId":       refused,
	"InvalidSecurity":            refused, // plain HTTP where the policy wants TLS
	"InvalidSignature":           refused,
	"KMS.AccessDenied":           refused,
	"KMS.Disabled":               refused,
	"KMS.InvalidKeyUsage":        refused,
	"KMS.InvalidState":           refused,
	"KMS.NotFound":               refused,
	"KMS.OptInRequired":          refused,
	"KmsAccessDenied":            refused,
	"KMSAccessDenied":            refused,
	"KmsDisabled":                refused,
	"KMSDisabled":                refused,
	"KmsInvalidKeyUsage":         refused,
	"KmsInvalidState":            refused,
	"KMSInvalidState":            refused,
	"KmsNotFound":                refused,
	"KMSNotFound":                refused,
	"KmsOptInRequired":           refused,
	"KMSOptInRequired":           refused,
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

	"InvalidParameter":            ambiguous,
	"InvalidParameterCombination": ambiguous,
	"InvalidParameterValue":       ambiguous,
	"MissingParameter":            ambiguous,
	"ParameterValueInvalid":       ambiguous,
	"Validation":                  ambiguous,
	"ValidationError":             ambiguous,
}

// BareCode is an error code without what services put around it.
func BareCode(code string) string {
	if i := strings.LastIndexByte(code, '#'); i >= 0 {
		code = code[i+1:]
	}
	code, _, _ = strings.Cut(code, ":")
	code = strings.TrimPrefix(code, "AWS.SimpleQueueService.")
	return strings.TrimSuffix(code, "Exception")
}

// isThrottle knows the codes that the SDK takes for throttling, and those of
// SQS and SNS.
func isThrottle(code string) bool {
	code = BareCode(code)
	switch code {
	case "KMS.Throttling", "KmsThrottled", "KMSThrottling", "OverLimit":
		return true
	}
	_, plain := retry.DefaultThrottleErrorCodes[code]
	_, long := retry.DefaultThrottleErrorCodes[code+"Exception"]
	return plain || long
}

func verdictOf(err error) verdict {
	if _, ok := errors.AsType[*missingError](err); ok {
		return missing
	}
	code := errorCode(err)
	if isThrottle(code) {
		return unavailable
	}
	return verdicts[BareCode(code)]
}

// missingError is an error whose code does not tell that the destination does
// not exist.
type missingError struct{ error }

func (e *missingError) Unwrap() error { return e.error }

// Missing marks err as saying that the destination does not exist.
func Missing(err error) error { return &missingError{err} }

// errorCode returns the code of the error that AWS answered, if it answered one.
func errorCode(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	if entry, ok := errors.AsType[*EntryError](err); ok {
		return entry.Code
	}
	return ""
}

func statusOf(err error) int {
	if r, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return r.HTTPStatusCode()
	}
	return 0
}

// aboutContents reports whether one message of the request may be the reason
// for which AWS refused all of it.
func aboutContents(err error) bool {
	switch verdictOf(err) {
	case invalid, ambiguous:
		return true
	case unknown:
		status := statusOf(err)
		return errorCode(err) != "" && status >= 400 && status < 500 && status != 401 && status != 403 && status != 429
	default:
		return false
	}
}
