package relay

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// Error texts are shown to people and stored: no passwords, nothing that a
// database refuses, no unbounded length.
func TestDescribe(t *testing.T) {
	for text, want := range map[string]string{
		"plain":      "plain",
		"bad\xffone": "bad\uFFFDone",
		"nul\x00":    "nul\uFFFD",
		"dial amqp://shop:s3cret@host:5672/x: refused":       "dial amqp://shop:xxxxx@host:5672/x: refused",
		`Get "https://u:p:w@h/": EOF, postgres://:pw@h/d`:    `Get "https://u:xxxxx@h/": EOF, postgres://:xxxxx@h/d`,
		"https://sqs.eu-west-1.amazonaws.com/123/orders: no": "https://sqs.eu-west-1.amazonaws.com/123/orders: no",
	} {
		if got := describe(errors.New(text)); got != want {
			t.Errorf("describe(%q) = %q, want %q", text, got, want)
		}
	}
	if got := describe(errors.New(strings.Repeat("ü", 5000))); len(got) > maxErrorText+len("…") || !utf8.ValidString(got) {
		t.Errorf("a long text became %d bytes, valid %v", len(got), utf8.ValidString(got))
	}
}
