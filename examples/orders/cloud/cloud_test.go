package cloud_test

import (
	"net"
	"testing"

	"github.com/postrider/postrider/examples/orders/cloud"
)

// What a service cannot listen on is no trouble of AWS's.
func TestUnreachable(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4566")
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"refused":                {&net.OpError{Op: "dial", Err: &net.AddrError{Err: "refused"}}, true},
		"no such host":           {&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host"}}, true},
		"a look-up by itself":    {&net.DNSError{Err: "no such host"}, true},
		"address taken":          {&net.OpError{Op: "listen", Err: &net.AddrError{Err: "taken"}}, false},
		"listen at a wrong name": {&net.OpError{Op: "listen", Err: &net.DNSError{Err: "no such host"}}, false},
	} {
		if got := cloud.Unreachable(c.err); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if hint := cloud.Hint(c.err); (hint != "") != c.want {
			t.Errorf("%s: hint %q", name, hint)
		}
	}
}
