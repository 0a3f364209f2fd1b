// Package web is what the shop's HTTP services share: errors as problem JSON
// (RFC 9457), methods with a proper 405, and a server that stops gracefully.
package web

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Problem is an error as the client sees it (RFC 9457). It never carries
// internals: those go to the log.
type Problem struct {
	Status int
	// Detail explains this occurrence and how to mend it.
	Detail string
	// Fields are the parts of the request that are wrong, if it is about them.
	Fields []Field
}

// Field is one wrong part of a request.
type Field struct {
	// Name of the field or header, as the client spells it.
	Name string `json:"field"`
	// Detail says what is wrong with it.
	Detail string `json:"detail"`
}

// Invalid is the problem of a request with wrong fields.
func Invalid(fields ...Field) *Problem {
	details := make([]string, len(fields))
	for i, f := range fields {
		details[i] = f.Name + " " + f.Detail
	}
	return &Problem{Status: http.StatusBadRequest, Detail: strings.Join(details, "; "), Fields: fields}
}

// Error makes a Problem usable as an error.
func (p *Problem) Error() string { return p.Detail }

// ServeHTTP writes the problem as the response.
func (p *Problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, "application/problem+json", p.Status, struct {
		Type   string  `json:"type"`
		Title  string  `json:"title"`
		Status int     `json:"status"`
		Detail string  `json:"detail,omitempty"`
		Errors []Field `json:"errors,omitempty"`
	}{"about:blank", http.StatusText(p.Status), p.Status, p.Detail, p.Fields})
}

// WriteJSON writes v as the response. v must be encodable.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	writeJSON(w, "application/json", status, v)
}

func writeJSON(w http.ResponseWriter, contentType string, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // a programming error: only encodable types are passed
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// A failed write means that the client has gone; there is nobody to tell.
	_, _ = w.Write(append(body, '\n'))
}
