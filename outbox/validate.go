package outbox

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits that Validate enforces, in bytes. Brokers have narrower ones, which
// their adapters check: what only the broker minds fails at publish.
const (
	MaxTopic       = 255
	MaxKey         = 1024
	MaxType        = 255
	MaxContentType = 255
	MaxHeaders     = 64 << 10 // names and values of all headers together
	MaxPayload     = 16 << 20
)

// Validate reports everything that is wrong with the message, joined; nil if
// it can be enqueued. It does not change the message.
func (m *Message) Validate() error {
	var errs []error
	if m.Topic == "" {
		errs = append(errs, errors.New("topic is empty: name the destination, such as \"orders\""))
	}
	text := func(field, s string, limit int) {
		switch {
		case len(s) > limit:
			errs = append(errs, fmt.Errorf("%s has %d bytes, at most %d are allowed", field, len(s), limit))
		case !utf8.ValidString(s):
			errs = append(errs, fmt.Errorf("%s is not valid UTF-8", field))
		case strings.IndexByte(s, 0) >= 0:
			errs = append(errs, fmt.Errorf("%s contains a NUL character, which databases refuse in text", field))
		}
	}
	text("topic", m.Topic, MaxTopic)
	text("key", m.Key, MaxKey)
	text("type", m.Type, MaxType)
	text("content type", m.ContentType, MaxContentType)
	if len(m.Payload) > MaxPayload {
		errs = append(errs, fmt.Errorf("payload has %d bytes, at most %d are allowed: store it elsewhere and send a reference", len(m.Payload), MaxPayload))
	}
	size := 0
	for name, value := range m.Headers {
		size += len(name) + len(value)
		if name == "" {
			errs = append(errs, errors.New("a header has an empty name"))
		}
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			errs = append(errs, fmt.Errorf("header %q is not valid UTF-8", name))
		}
	}
	if size > MaxHeaders {
		errs = append(errs, fmt.Errorf("headers have %d bytes, at most %d are allowed", size, MaxHeaders))
	}
	if !m.Expires.IsZero() && !m.NotBefore.IsZero() && !m.Expires.After(m.NotBefore) {
		errs = append(errs, errors.New("expires is not after not-before: the message could never be sent"))
	}
	return errors.Join(errs...)
}
