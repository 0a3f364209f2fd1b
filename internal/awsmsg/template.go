package awsmsg

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/postrider/postrider/outbox"
)

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// Template is a destination in which {topic}, {key} and {type} stand for the
// message's own.
type Template struct {
	kind    string // "queue" or "topic"
	text    string
	derived bool // it has placeholders
	check   func(destination string) error
}

// NewTemplate checks the text. kind is what a destination is called; check
// tells what is wrong with one that has no placeholders.
func NewTemplate(kind, text string, check func(destination string) error) (*Template, error) {
	t := &Template{kind: kind, text: text, check: check}
	for _, p := range placeholder.FindAllString(text, -1) {
		switch p {
		case "{topic}", "{key}", "{type}":
			t.derived = true
		default:
			return nil, fmt.Errorf("%s %q: %s is not known: use {topic}, {key} or {type}", kind, text, p)
		}
	}
	return t, check(placeholder.ReplaceAllLiteralString(text, "x"))
}

// Expand returns the message's destination.
func (t *Template) Expand(m *outbox.Message) (string, error) {
	if !t.derived {
		return t.text, nil
	}
	var problem error
	destination := placeholder.ReplaceAllStringFunc(t.text, func(p string) string {
		var value string
		switch p {
		case "{topic}":
			value = m.Topic
		case "{key}":
			value = m.Key
		case "{type}":
			value = m.Type
		}
		switch {
		case value == "":
			problem = fmt.Errorf("%s %q needs the message's %s, which is empty", t.kind, t.text, strings.Trim(p, "{}"))
		case strings.ContainsFunc(value, notInName):
			problem = fmt.Errorf("%s %q: %q has characters that no name of a %s has", t.kind, t.text, value, t.kind)
		}
		return value
	})
	if problem != nil {
		return "", problem
	}
	return destination, t.check(destination)
}

// Destination is what Expand returns; empty for a template without
// placeholders, and the template itself for a message that it does not fit.
func (t *Template) Destination(m *outbox.Message) string {
	if !t.derived {
		return ""
	}
	destination, err := t.Expand(m)
	if err != nil {
		return t.text
	}
	return destination
}

func notInName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
}

// missing turns the error about a destination that does not exist into the
// message's own fault where its name came from the message.
func (t *Template) missing(err error) error {
	if t.derived && verdictOf(err) == missing {
		return outbox.Permanent(err)
	}
	return err
}
