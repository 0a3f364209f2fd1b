package config

import (
	"encoding"
	"fmt"
	"log/slog"
)

const redacted = "[redacted]"

// Secret holds a text that must not be printed. However it is formatted,
// logged or marshalled it shows "[redacted]", or nothing if it is empty.
type Secret struct{ text string }

// NewSecret wraps text.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal returns the text, for the one place that needs it.
func (s Secret) Reveal() string { return s.text }

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.text == "" }

func (s Secret) String() string {
	if s.text == "" {
		return ""
	}
	return redacted
}

// GoString keeps %#v quiet.
func (s Secret) GoString() string { return `config.Secret("` + s.String() + `")` }

// Format keeps every other verb quiet, %x and %d included.
func (s Secret) Format(f fmt.State, verb rune) {
	text := s.String()
	if verb == 'v' && f.Flag('#') {
		text = s.GoString()
	}
	_, _ = f.Write([]byte(text)) // fmt.State never fails
}

// LogValue keeps slog quiet.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText keeps encoders (JSON, XML, YAML) quiet.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

var (
	_ fmt.Formatter          = Secret{}
	_ fmt.GoStringer         = Secret{}
	_ slog.LogValuer         = Secret{}
	_ encoding.TextMarshaler = Secret{}
)
