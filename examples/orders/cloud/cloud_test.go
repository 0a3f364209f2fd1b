package cloud_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

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

// early answers at once and keeps the body, as a writer that is late does.
type early struct{ body io.ReadCloser }

func (e *early) Do(r *http.Request) (*http.Response, error) {
	e.body = r.Body
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{}, Request: r, Body: io.NopCloser(strings.NewReader("{}")),
	}, nil
}

func TestDynamoDBLosesNoAnswers(t *testing.T) {
	var e early
	client := cloud.DynamoDB(aws.Config{
		Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""), HTTPClient: &e,
	})
	if _, err := client.ListTables(t.Context(), &dynamodb.ListTablesInput{}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, e.body); err != nil {
		t.Errorf("a late reader of the request finds a failure at its end: %v", err)
	}
}
