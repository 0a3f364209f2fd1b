package pgstore

import (
	"time"

	"github.com/postrider/postrider/internal/headers"
	"github.com/postrider/postrider/outbox"
)

// Nullables are the columns of a message that may be null.
type Nullables struct {
	Headers            *string
	NotBefore, Expires *time.Time
}

// Into sets the message's fields.
func (n *Nullables) Into(m *outbox.Message) {
	if n.Headers != nil {
		m.Headers = Headers(*n.Headers)
	}
	if n.NotBefore != nil {
		m.NotBefore = *n.NotBefore
	}
	if n.Expires != nil {
		m.Expires = *n.Expires
	}
}

// Headers are a message's, as the column has them.
func Headers(text string) map[string]string {
	parsed, err := headers.Parse(text)
	if err != nil {
		return map[string]string{"": text} // the table's check leaves no such text
	}
	return parsed
}
