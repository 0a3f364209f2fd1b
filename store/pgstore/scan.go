package pgstore

import (
	"encoding/json"
	"time"

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
		m.Headers = parseHeaders(*n.Headers)
	}
	if n.NotBefore != nil {
		m.NotBefore = *n.NotBefore
	}
	if n.Expires != nil {
		m.Expires = *n.Expires
	}
}

// parseHeaders takes every JSON object, since whoever writes SQL may put
// anything there: a value that is no string becomes its JSON text.
func parseHeaders(text string) map[string]string {
	var headers map[string]string
	if json.Unmarshal([]byte(text), &headers) == nil {
		return headers
	}
	var values map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &values) != nil {
		return map[string]string{"": text} // the table's check leaves no such text
	}
	headers = make(map[string]string, len(values))
	for name, value := range values {
		var s string
		if value[0] == '"' && json.Unmarshal(value, &s) == nil {
			headers[name] = s
		} else {
			headers[name] = string(value)
		}
	}
	return headers
}
