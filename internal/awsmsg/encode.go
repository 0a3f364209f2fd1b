package awsmsg

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/outbox"
)

// Encoding says how a payload becomes a body.
type Encoding string

const (
	Raw    Encoding = "raw"    // the payload is the body
	Base64 Encoding = "base64" // for payloads that are not text: standard base64
)

// CheckEncoding returns what an encoding means, with Raw where none is given.
func CheckEncoding(e Encoding) (Encoding, error) {
	switch e {
	case "":
		return Raw, nil
	case Raw, Base64:
		return e, nil
	default:
		return e, fmt.Errorf("encoding %q is not known: use %q or %q", e, Raw, Base64)
	}
}

// Names of attributes. The package comments of broker/sqsbroker and
// broker/snsbroker describe them.
const (
	AttrType        = "EventType"
	AttrID          = "postrider-id"
	AttrTopic       = "postrider-topic"
	AttrKey         = "postrider-key"
	AttrContentType = "content-type"
	AttrEncoding    = "postrider-encoding"
	AttrHeaders     = "postrider-headers"
	attrTrace       = "traceparent"
)

// encodingEmpty marks the body of an empty payload, which AWS would refuse.
const (
	encodingEmpty = "empty"
	emptyBody     = "-"
)

// Data types of attributes.
const (
	TypeString = "String"
	TypeBinary = "Binary"
)

// MaxAttributes is the most attributes of one message. SNS takes more, but
// drops what has more on its way into a queue with raw delivery:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
// https://docs.aws.amazon.com/sns/latest/dg/sns-message-attributes.html
const MaxAttributes = 10

// reserved names never hold a header.
func reserved(name string) bool {
	switch name {
	case AttrType, AttrID, AttrTopic, AttrKey, AttrContentType, AttrEncoding, AttrHeaders:
		return true
	}
	return false
}

// Attribute is one message attribute: text, or bytes.
type Attribute struct {
	Value  string
	Binary bool
}

// DataType is the type of the attribute as AWS calls it.
func (a Attribute) DataType() string {
	if a.Binary {
		return TypeBinary
	}
	return TypeString
}

// Encoded is a message as SQS and SNS take it.
type Encoded struct {
	Body  string
	Attrs map[string]Attribute
	// Size in bytes as AWS counts: the body and, of every attribute, name,
	// type and value.
	Size int
}

// Encode returns the error that makes the message permanent, unclassified.
// service is who refuses: "SQS" or "SNS".
func Encode(m *outbox.Message, encoding Encoding, service string) (Encoded, error) {
	e := encoder{service: service, encoding: encoding, out: Encoded{Attrs: make(map[string]Attribute, MaxAttributes)}}
	err := errors.Join(
		e.setBody(m.Payload),
		e.setText(AttrTopic, "topic", m.Topic),
		e.setText(AttrKey, "key", m.Key),
		e.setText(AttrType, "type", m.Type),
		e.setText(AttrContentType, "content type", m.ContentType),
	)
	e.set(AttrID, m.ID.String())
	if err := errors.Join(err, e.setHeaders(m.Headers)); err != nil {
		return Encoded{}, err
	}
	e.out.Size = len(e.out.Body)
	for name, a := range e.out.Attrs {
		e.out.Size += len(name) + len(a.DataType()) + len(a.Value)
	}
	return e.out, nil
}

type encoder struct {
	service  string
	encoding Encoding
	out      Encoded
}

func (e *encoder) set(name, value string) { e.out.Attrs[name] = Attribute{Value: value} }

func (e *encoder) setBody(payload []byte) error {
	switch {
	case e.encoding == Base64 && len(payload) == 0:
		e.out.Body = emptyBody
		e.set(AttrEncoding, encodingEmpty)
	case e.encoding == Base64:
		e.out.Body = base64.StdEncoding.EncodeToString(payload)
		e.set(AttrEncoding, string(Base64))
	case len(payload) == 0:
		return fmt.Errorf("payload is empty, which %s refuses: %s", e.service, remedy)
	default:
		e.out.Body = string(payload)
		return e.check("payload", e.out.Body)
	}
	return nil
}

// setText sets the attribute of one field; empty fields have none.
func (e *encoder) setText(name, field, value string) error {
	if value == "" {
		return nil
	}
	err := e.check(field, value)
	switch {
	case err == nil:
		e.set(name, value)
	case e.encoding == Base64:
		e.out.Attrs[name] = Attribute{Value: value, Binary: true}
	default:
		return err
	}
	return nil
}

func (e *encoder) setHeaders(headers map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if !utf8.ValidString(name) || !utf8.ValidString(headers[name]) {
			return fmt.Errorf("header %q is not valid UTF-8", name)
		}
	}
	if e.fit(headers) {
		for name, value := range headers {
			e.set(name, value)
		}
		return nil
	}
	if trace := headers[attrTrace]; trace != "" && firstRefused(trace) == nil {
		e.set(attrTrace, trace)
	}
	object, err := asciiSafeJSON(headers)
	if err != nil {
		return fmt.Errorf("headers as JSON: %w", err)
	}
	e.set(AttrHeaders, object)
	return nil
}

// fit reports whether every header can have an attribute of its own.
func (e *encoder) fit(headers map[string]string) bool {
	if len(e.out.Attrs)+len(headers) > MaxAttributes {
		return false
	}
	for name, value := range headers {
		if value == "" || reserved(name) || !validAttributeName(name) || firstRefused(value) != nil {
			return false
		}
	}
	return true
}

// asciiSafeJSON escapes, beyond what JSON demands, what AWS refuses.
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
