package awsproxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/smithy-go"
)

// topic answers PublishBatch with success and remembers the last form.
func topic(t *testing.T) (endpoint string, last func() url.Values, forget func()) {
	var form url.Values
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		form = parseForm(r, body)
		b, ok := parseQueryBatch(form)
		if !ok {
			http.Error(w, "no batch", http.StatusTeapot)
			return
		}
		var answer batchAnswer
		for _, e := range b.entries() {
			answer.successful = append(answer.successful, answered{e.id, fmt.Appendf(nil, "<Id>%s</Id><MessageId>m%s</MessageId>", e.id, e.id)})
		}
		_, _ = w.Write(b.format(answer))
	}))
	t.Cleanup(server.Close)
	return server.URL, func() url.Values { return form }, func() { form = nil }
}

func snsClient(endpoint string) *sns.Client {
	return sns.NewFromConfig(aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(endpoint), RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""),
	})
}

func publish(t *testing.T, client *sns.Client, n int) (*sns.PublishBatchOutput, error) {
	t.Helper()
	in := &sns.PublishBatchInput{TopicArn: aws.String("arn:aws:sns:us-east-1:123456789012:orders")}
	for i := range n {
		in.PublishBatchRequestEntries = append(in.PublishBatchRequestEntries, types.PublishBatchRequestEntry{
			Id: aws.String(fmt.Sprint("e", i)), Message: aws.String(fmt.Sprintf("<message & %d>", i)),
			MessageAttributes: map[string]types.MessageAttributeValue{"a": {DataType: aws.String("String"), StringValue: aws.String("v")}},
		})
	}
	return client.PublishBatch(t.Context(), in)
}

// ids of what passed and of what failed, and the codes.
func outcome(out *sns.PublishBatchOutput) string {
	var all []string
	for _, ok := range out.Successful {
		all = append(all, *ok.Id+"="+*ok.MessageId)
	}
	for _, f := range out.Failed {
		all = append(all, fmt.Sprintf("%s:%s,%v", *f.Id, *f.Code, f.SenderFault))
	}
	return strings.Join(all, " ")
}

func TestFailEntriesOfPublishBatch(t *testing.T) {
	endpoint, last, forget := topic(t)
	s, err := Start(endpoint, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	client := snsClient(s.URL)
	for _, c := range []struct {
		fault     Fault
		want      string
		forwarded int // 0: no request
	}{
		{FailEntries(At(1, 3), "InternalError", false), "e0=me0 e2=me2 e1:InternalError,false e3:InternalError,false", 2},
		{FailEntries(Containing("<message & 2>"), "InvalidParameter", true), "e0=me0 e1=me1 e3=me3 e2:InvalidParameter,true", 3},
		{FailEntries(Containing("message"), "X", true), "e0:X,true e1:X,true e2:X,true e3:X,true", 0},
		{OmitEntries(At(0, 3)), "e1=me1 e2=me2", 4},
	} {
		forget()
		remove := s.Add(Rule{Target: "AmazonSNS.PublishBatch", Containing: "sns:us-east-1:123456789012:orders", Fault: c.fault})
		out, err := publish(t, client, 4)
		remove()
		if err != nil {
			t.Fatal(err)
		}
		if got := outcome(out); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
		forwarded := 0
		if b, ok := parseQueryBatch(last()); ok {
			forwarded = len(b.entries())
		}
		if forwarded != c.forwarded {
			t.Errorf("%d entries were forwarded, want %d", forwarded, c.forwarded)
		}
	}
	if n := s.Requests("PublishBatch"); n != 4 || s.Requests("AmazonSNS") != 4 {
		t.Errorf("%d requests were counted, want 4: %v", n, s.Counts())
	}
}

// Errors of the query protocol are XML.
func TestErrorsOfSNS(t *testing.T) {
	endpoint, _, _ := topic(t)
	s, err := Start(endpoint, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	client := snsClient(s.URL)
	for code, fault := range map[string]Fault{
		"NotFound": MissingTopic(), "ThrottlingException": Throttle(), "AccessDenied": AccessDenied(), "ExpiredToken": ExpiredCredentials(),
		"ServiceUnavailableException": Unavailable(),
	} {
		remove := s.Add(Rule{Fault: fault})
		_, err := publish(t, client, 1)
		remove()
		if api, ok := errors.AsType[smithy.APIError](err); !ok || api.ErrorCode() != code {
			t.Errorf("%v, want %s", err, code)
		}
	}
	if out, err := publish(t, client, 1); err != nil || outcome(out) != "e0=me0" {
		t.Errorf("without a rule: %v, %v", out, err)
	}
}
