package awsbody_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/internal/awsbody"
)

// early answers at once and keeps the body, as a writer that is late does.
type early struct{ body io.ReadCloser }

func (e *early) Do(r *http.Request) (*http.Response, error) {
	e.body = r.Body
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"QueueUrl":"u"}`)),
	}, nil
}

// lateRead is what reading the body yields once the SDK has closed it.
func lateRead(t *testing.T, wrap func(awsbody.Client) awsbody.Client) error {
	t.Helper()
	var e early
	client := sqs.NewFromConfig(aws.Config{
		Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""), HTTPClient: wrap(&e),
	})
	if _, err := client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("q")}); err != nil {
		t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, e.body)
	return err
}

func TestLateReaderFindsTheEnd(t *testing.T) {
	if err := lateRead(t, awsbody.Wrap); err != nil {
		t.Errorf("a failure at the end of the body: %v", err)
	}
	if err := lateRead(t, func(c awsbody.Client) awsbody.Client { return c }); err == nil {
		t.Log("the SDK is mended: this package can go")
	}
}

func TestNoBodyStaysNone(t *testing.T) {
	var e early
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := awsbody.Wrap(&e).Do(r); err != nil || e.body != http.NoBody {
		t.Errorf("%v, %v", e.body, err)
	}
}
