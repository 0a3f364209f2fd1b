package snsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/postrider/postrider/broker/snsbroker"
	"github.com/postrider/postrider/outbox"
)

// class is what an error must be.
type class struct {
	outbox.Class
	timeout, alarm bool
}

var (
	retryable   = class{Class: outbox.ClassRetryable}
	unavailable = class{Class: outbox.ClassUnavailable}
	timedOut    = class{Class: outbox.ClassUnavailable, timeout: true}
	refused     = class{Class: outbox.ClassUnavailable, alarm: true}
	permanent   = class{Class: outbox.ClassPermanent}
)

func classOf(err error) class {
	return class{Class: outbox.ClassOf(err), timeout: outbox.IsTimeout(err), alarm: outbox.IsAlarm(err)}
}

const (
	fixedTopic   = "arn:aws-cn:sns:cn-north-1:123456789012:orders"
	derivedTopic = "arn:aws-cn:sns:cn-north-1:123456789012:{topic}"
)

func failure(code, message string) string {
	if code == "" {
		return ""
	}
	return fmt.Sprintf(`<ErrorResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>r</RequestId></ErrorResponse>`, code, message)
}

// What SNS answers to the whole request, as it goes over the wire.
func TestErrorsOfRequests(t *testing.T) {
	for _, c := range []struct {
		name         string
		status       int
		body         string
		fixed, taken class // with a fixed topic, and with one named by the message
	}{
		{"missing topic", 404, failure("NotFound", "Topic does not exist"), refused, permanent},
		{"topic of another region", 400, failure("InvalidParameter", "Invalid parameter: TopicArn"), refused, permanent},
		{"access denied", 403, failure("AuthorizationError", "not authorized to perform: SNS:Publish"), refused, refused},
		{"access denied, older code", 403, failure("AccessDenied", "no"), refused, refused},
		{"expired token", 403, failure("ExpiredToken", "no"), refused, refused},
		{"unknown key", 403, failure("InvalidClientTokenId", "no"), refused, refused},
		{"wrong secret", 403, failure("SignatureDoesNotMatch", "no"), refused, refused},
		{"opt in", 403, failure("OptInRequired", "no"), refused, refused},
		{"plain HTTP", 403, failure("InvalidSecurity", "no"), refused, refused},
		{"key of the topic denied", 400, failure("KMSAccessDenied", "no"), refused, refused},
		{"key of the topic disabled", 400, failure("KMSDisabled", "no"), refused, refused},
		{"key of the topic gone", 400, failure("KMSNotFound", "no"), refused, refused},
		{"key of the topic throttled", 400, failure("KMSThrottling", "no"), unavailable, unavailable},
		{"throttled", 429, failure("Throttled", "no"), unavailable, unavailable},
		{"throttled, common code", 400, failure("Throttling", "Rate exceeded"), unavailable, unavailable},
		{"throttled without a word", 429, "", unavailable, unavailable},
		{"internal", 500, failure("InternalError", "no"), unavailable, unavailable},
		{"internal, common code", 500, failure("InternalFailure", "no"), unavailable, unavailable},
		{"unavailable", 503, failure("ServiceUnavailable", "no"), unavailable, unavailable},
		{"bad gateway", 502, "<html>", unavailable, unavailable},
		{"gateway time-out", 504, "", timedOut, timedOut},
		{"forbidden without a word", 403, "", refused, refused},
		{"a page of somebody else", 200, "<html><body>log in</body></html>", unavailable, unavailable},
		{"not SNS at all", 404, "<html></html>", unavailable, unavailable},
		{"too long", 400, failure("BatchRequestTooLong", "no"), permanent, permanent},
		{"a parameter, nobody knows which", 400, failure("InvalidParameter", "Invalid parameter: Message"), retryable, retryable},
		{"an unknown code", 400, failure("NewIn2031", "no"), retryable, retryable},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{answer: func(url.Values) (int, string) { return c.status, c.body }}
			for topic, want := range map[string]class{fixedTopic: c.fixed, derivedTopic: c.taken} {
				result := f.publish(t, topic, messages(t, 1)...)[0]
				if result.Err == nil {
					t.Fatal("acknowledged")
				}
				if got := classOf(result.Err); got != want {
					t.Errorf("%s: %+v, want %+v: %v", topic, got, want, result.Err)
				}
			}
			if len(f.forms) != 2 {
				t.Errorf("%d requests for 2 calls", len(f.forms))
			}
		})
	}
}

// SNS refuses a request of one message, of three, and of one that has more than
// a topic takes unasked, for a parameter.
func TestWhoseFaultAParameterIs(t *testing.T) {
	f := &fake{answer: func(url.Values) (int, string) {
		return 400, failure("InvalidParameter", "Invalid parameter: Message too long")
	}}
	msgs := messages(t, 3)
	msgs[2].Payload = make([]byte, snsbroker.DefaultMaxBytes)
	for i := range msgs[2].Payload {
		msgs[2].Payload[i] = 'x'
	}
	for i, result := range f.publish(t, fixedTopic, msgs...) {
		want := retryable
		if i == 2 {
			want = permanent
		}
		if got := classOf(result.Err); got != want {
			t.Errorf("message %d: %+v, want %+v: %v", i, got, want, result.Err)
		}
	}
	if len(f.forms) != 4 {
		t.Errorf("%d requests, want one of two, two of one, and one of the large", len(f.forms))
	}
}

// What SNS answers for one entry of three, alone and while others pass.
func TestErrorsOfEntries(t *testing.T) {
	for _, c := range []struct {
		code          string
		sender        bool
		others, alone class
	}{
		{"InvalidParameter", true, permanent, permanent},
		{"ParameterValueInvalid", true, permanent, permanent},
		{"NotFound", true, refused, refused},
		{"AuthorizationError", true, refused, refused},
		{"KMSDisabled", true, refused, refused},
		{"Throttled", true, unavailable, unavailable},
		{"InternalError", false, retryable, unavailable},
		{"ServiceUnavailable", false, retryable, unavailable},
		{"NewIn2031", true, retryable, retryable},
		{"NewIn2031", false, retryable, unavailable},
	} {
		failed := fmt.Sprintf("<member><Id>0</Id><Code>%s</Code><SenderFault>%v</SenderFault><Message>no</Message></member>", c.code, c.sender)
		answer := publishAnswer("<member><Id>1</Id><MessageId>b</MessageId></member>", failed)
		f := &fake{answer: func(url.Values) (int, string) { return 200, answer }}
		results := f.publish(t, fixedTopic, messages(t, 3)...)
		if got := classOf(results[0].Err); got != c.others {
			t.Errorf("%s, others pass: %+v, want %+v: %v", c.code, got, c.others, results[0].Err)
		}
		if results[1].Err != nil || results[1].BrokerID != "b" {
			t.Errorf("%s: the neighbour has %+v", c.code, results[1])
		}
		if results[2].Err == nil || classOf(results[2].Err) != retryable {
			t.Errorf("%s: an entry without an answer has %v", c.code, results[2].Err)
		}
		answer = publishAnswer("", failed)
		if got := classOf(f.publish(t, fixedTopic, messages(t, 1)...)[0].Err); got != c.alone {
			t.Errorf("%s, alone: %+v, want %+v", c.code, got, c.alone)
		}
	}
}

// STS, which tells the account, can fail as well.
func TestErrorsOfSTS(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   class
	}{
		{403, failure("ExpiredToken", "no"), refused},
		{403, failure("AccessDenied", "no"), refused},
		{503, failure("ServiceUnavailable", "no"), unavailable},
		{400, failure("Throttling", "no"), unavailable},
		{502, "", unavailable},
		{200, `<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>nobody</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>`, unavailable},
	} {
		f := &fake{answer: func(form url.Values) (int, string) { return c.status, c.body }}
		for i, result := range f.publish(t, "{topic}", messages(t, 2)...) {
			if got := classOf(result.Err); got != c.want {
				t.Errorf("message %d: %d %s: %+v, want %+v: %v", i, c.status, c.body, got, c.want, result.Err)
			}
		}
		if len(f.forms) != 1 {
			t.Errorf("%d requests", len(f.forms))
		}
	}
}

// What the network does.
func TestErrorsOfTransport(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer hanging.Close()
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte("<PublishBatchResponse>"))
	}))
	defer cut.Close()
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	defer garbage.Close()
	strange := httptest.NewTLSServer(http.NotFoundHandler())
	defer strange.Close()

	client := func(endpoint string, with ...func(*sns.Options)) *sns.Client {
		cfg := (&fake{}).config()
		cfg.HTTPClient, cfg.BaseEndpoint = http.DefaultClient, aws.String(endpoint)
		return sns.NewFromConfig(cfg, with...)
	}
	for _, c := range []struct {
		name    string
		client  *sns.Client
		timeout time.Duration
		want    class
	}{
		{"refused connection", client("http://" + closed.Addr().String()), time.Minute, unavailable},
		{"answer cut off", client(cut.URL), time.Minute, unavailable},
		{"answer that is none", client(garbage.URL), time.Minute, unavailable},
		{"deadline", client(hanging.URL), 50 * time.Millisecond, timedOut},
		{"certificate of nobody we know", client(strange.URL), time.Minute, refused},
		{"no credentials", client(hanging.URL, func(o *sns.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{}, errors.New("no role found")
			})
		}), time.Minute, refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := snsbroker.NewPublisher(snsbroker.PublisherConfig{Client: c.client, Topic: fixedTopic})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
			defer cancel()
			for i, result := range p.Publish(ctx, messages(t, 3)) {
				if result.Err == nil {
					t.Fatal("acknowledged")
				}
				if got := classOf(result.Err); got != c.want {
					t.Errorf("message %d: %+v, want %+v: %v", i, got, c.want, result.Err)
				}
			}
		})
	}
}
