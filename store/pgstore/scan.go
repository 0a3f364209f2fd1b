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
		var err error
		if m.Headers, err = headers.Parse(*n.Headers); err != nil {
			m.Headers = map[string]string{"": *n.Headers} // the table's check leaves no such text
		}
	}
	if n.NotBefore != nil {
		m.NotBefore = *n.NotBefore
	}
	if n.Expires != nil {
		m.Expires = *n.Expires
	}
}
