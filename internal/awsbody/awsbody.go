// Package awsbody mends one fault of the AWS SDK, which makes a busy machine
// lose answers that have arrived.
//
// The SDK closes a request's body as soon as the answer's head is there
// (smithy-go, transport/http/client.go). net/http may then still be about to
// look for the body's end; the SDK's body answers its WriteTo with io.EOF, which
// io.Copy takes for a failure, and net/http closes the connection under the
// answer: "deserialization failed … use of closed network connection". The
// SDK repeats the request, which SQS has carried out: messages are sent twice,
// or hidden as if received. Seen with smithy-go 1.28.9 and Go 1.26 under load.
package awsbody

import (
	"io"
	"net/http"
)

// Client is what the SDK's options call HTTPClient.
type Client interface {
	Do(*http.Request) (*http.Response, error)
}

// Wrap returns a client that does as inner does, with bodies that can only be
// read: Read at the end is no failure. inner must not be nil.
func Wrap(inner Client) Client { return client{inner} }

type client struct{ inner Client }

// Do implements Client.
func (c client) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return c.inner.Do(r)
	}
	plain := *r
	plain.Body = struct{ io.ReadCloser }{r.Body}
	return c.inner.Do(&plain)
}
