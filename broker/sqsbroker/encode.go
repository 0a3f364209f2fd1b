package sqsbroker

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/postrider/postrider/outbox"
)

// Limits of SQS.
const (
	// MaxMessageBytes is the most that one message may have: body and, of every
	// attribute, name, type and value. MaxBatchBytes is the same for all
	// messages of one request. Both are 1 MiB since August 2025:
	// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html
	// https://aws.amazon.com/blogs/compute/more-room-to-build-serverless-services-now-support-payloads-up-to-1-mb
	MaxMessageBytes = 1 << 20
	MaxBatchBytes   = 1 << 20

	// MaxBatch is the most messages of one request, MaxAttributes the most
	// attributes of one message:
	// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
	MaxBatch      = 10
	MaxAttributes = 10

	maxGroupID       = 128
	maxAttributeName = 256
)

// Encoding says how a payload becomes a body.
type Encoding string

const (
	Raw    Encoding = "raw"    // the payload is the body
	Base64 Encoding = "base64" // for payloads that are not text: standard base64
)

// Names of attributes, as the package comment describes them.
const (
	attrType        = "EventType"
	attrID          = "postrider-id"
	attrTopic       = "postrider-topic"
	attrKey         = "postrider-key"
	attrContentType = "content-type"
	attrEncoding    = "postrider-encoding"
	attrHeaders     = "postrider-headers"
	attrTrace       = "traceparent"
)

// encodingEmpty marks the body of an empty payload, which SQS would refuse.
const (
	encodingEmpty = "empty"
	emptyBody     = "-"
)

const (
	typeString = "String"
	typeBinary = "Binary"
)

// reserved names never hold a header.
func reserved(name string) bool {
	switch name {
	case attrType, attrID, attrTopic, attrKey, attrContentType, attrEncoding, attrHeaders:
		return true
	}
	return false
}

// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html
var attributeName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

func validAttributeName(name string) bool {
	lower := strings.ToLower(name)
	return len(name) <= maxAttributeName && attributeName.MatchString(name) &&
		!strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.")
}

// encoded is a message as SQS takes it.
type encoded struct {
	body  string
	attrs map[string]types.MessageAttributeValue
	size  int
}

// encode returns the error that makes the message permanent, unclassified.
func encode(m *outbox.Message, encoding Encoding) (encoded, error) {
	e := encoded{attrs: make(map[string]types.MessageAttributeValue, MaxAttributes)}
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	note(e.setBody(m.Payload, encoding))
	e.setString(attrID, m.ID.String())
	note(e.setText(attrTopic, "topic", m.Topic, encoding))
	note(e.setText(attrKey, "key", m.Key, encoding))
	note(e.setText(attrType, "type", m.Type, encoding))
	note(e.setText(attrContentType, "content type", m.ContentType, encoding))
	note(e.setHeaders(m.Headers))
	if err := errors.Join(errs...); err != nil {
		return encoded{}, err
	}
	e.size = len(e.body)
	for name, v := range e.attrs {
		e.size += len(name) + len(*v.DataType) + len(aws.ToString(v.StringValue)) + len(v.BinaryValue)
	}
	return e, nil
}

func (e *encoded) setString(name, value string) {
	e.attrs[name] = types.MessageAttributeValue{DataType: aws.String(typeString), StringValue: aws.String(value)}
}

func (e *encoded) setBody(payload []byte, encoding Encoding) error {
	switch {
	case encoding == Base64 && len(payload) == 0:
		e.body = emptyBody
		e.setString(attrEncoding, encodingEmpty)
	case encoding == Base64:
		e.body = base64.StdEncoding.EncodeToString(payload)
		e.setString(attrEncoding, string(Base64))
	case len(payload) == 0:
		return errors.New("payload is empty, which SQS refuses: \"encoding: base64\" on the route mends it")
	default:
		e.body = string(payload)
		return checkText("payload", e.body)
	}
	return nil
}

// setText sets the attribute of one field; empty fields have none.
func (e *encoded) setText(name, field, value string, encoding Encoding) error {
	if value == "" {
		return nil
	}
	err := checkText(field, value)
	if err == nil {
		e.setString(name, value)
		return nil
	}
	if encoding != Base64 {
		return err
	}
	e.attrs[name] = types.MessageAttributeValue{DataType: aws.String(typeBinary), BinaryValue: []byte(value)}
	return nil
}

func (e *encoded) setHeaders(headers map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if !utf8.ValidString(name) || !utf8.ValidString(headers[name]) {
			return fmt.Errorf("header %q is not valid UTF-8", name)
		}
	}
	if e.fit(headers) {
		for name, value := range headers {
			e.setString(name, value)
		}
		return nil
	}
	if trace := headers[attrTrace]; trace != "" && checkText("", trace) == nil {
		e.setString(attrTrace, trace)
	}
	object, err := asciiSafeJSON(headers)
	if err != nil {
		return fmt.Errorf("headers as JSON: %w", err)
	}
	e.setString(attrHeaders, object)
	return nil
}

// fit reports whether every header can have an attribute of its own.
func (e *encoded) fit(headers map[string]string) bool {
	if len(e.attrs)+len(headers) > MaxAttributes {
		return false
	}
	for name, value := range headers {
		if value == "" || reserved(name) || !validAttributeName(name) || checkText("", value) != nil {
			return false
		}
	}
	return true
}

// asciiSafeJSON escapes, beyond what JSON demands, what SQS refuses.
func asciiSafeJSON(headers map[string]string) (string, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(headers); err != nil {
		return "", err
	}
	text := strings.TrimSuffix(buf.String(), "\n")
	return strings.NewReplacer("\ufffe", `\ufffe`, "\uffff", `\uffff`).Replace(text), nil
}

// checkText returns an error that names the first character that SQS refuses:
// all but #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF
// (API_SendMessageBatch, as above).
func checkText(field, s string) error {
	for i, r := range s {
		if r >= ' ' && r != utf8.RuneError && r < 0xFFFE || r == '\n' || r == '\r' || r == '\t' || r > 0xFFFF {
			continue
		}
		what := fmt.Sprintf("the character U+%04X", r)
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size > 1 {
				continue // a real U+FFFD
			}
			what = fmt.Sprintf("byte 0x%02X, which is not UTF-8,", s[i])
		}
		return fmt.Errorf("%s has %s at byte %d, which SQS refuses: \"encoding: base64\" on the route mends it", field, what, i)
	}
	return nil
}

// groupID is the message group of a key on a FIFO queue: the key itself where
// SQS takes it, otherwise its hash; without a key the message's own id.
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
func groupID(m *outbox.Message) string {
	if m.Key == "" {
		return m.ID.String()
	}
	fits := len(m.Key) <= maxGroupID && !strings.ContainsFunc(m.Key, func(r rune) bool { return r <= ' ' || r > '~' })
	if fits {
		return m.Key
	}
	sum := sha256.Sum256([]byte(m.Key))
	return hex.EncodeToString(sum[:])
}
