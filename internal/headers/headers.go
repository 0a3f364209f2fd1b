// Package headers reads the headers that a database keeps as JSON.
package headers

import (
	"encoding/json"
	"errors"
)

// text is a string, or the JSON text of another value.
type text string

// UnmarshalJSON never fails on what is valid JSON.
func (t *text) UnmarshalJSON(value []byte) error {
	var s string
	if value[0] != '"' || json.Unmarshal(value, &s) != nil {
		s = string(value)
	}
	*t = text(s)
	return nil
}

// Parse takes every JSON object, since whoever writes SQL may put anything
// there: a value that is no string becomes its JSON text. An error means that
// it is no JSON, or no object.
func Parse(s string) (map[string]string, error) {
	if s == "{}" {
		return nil, nil
	}
	var plain map[string]string
	if json.Unmarshal([]byte(s), &plain) == nil && plain != nil && !hasEmpty(plain) {
		return plain, nil // as nearly always, and faster
	}
	var values map[string]text
	if err := json.Unmarshal([]byte(s), &values); err != nil {
		return nil, err
	}
	if values == nil {
		return nil, errors.New("null is no JSON object")
	}
	headers := make(map[string]string, len(values))
	for name, value := range values {
		headers[name] = string(value)
	}
	return headers, nil
}

// hasEmpty reports whether a value is empty, which may have been a null.
func hasEmpty(headers map[string]string) bool {
	for _, value := range headers {
		if value == "" {
			return true
		}
	}
	return false
}
