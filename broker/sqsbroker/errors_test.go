package sqsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/broker/sqsbroker"
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

const queueURL = "https://sqs.us-east-1.amazonaws.com/123456789012/orders"

func clientFor(endpoint string, with ...func(*sqs.Options)) *sqs.Client {
	return sqs.NewFromConfig(aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(endpoint),
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	}, append([]func(*sqs.Options){func(o *sqs.Options) { o.RetryMaxAttempts = 1 }}, with...)...)
}

// publishTo publishes n messages to a queue and returns their results.
func publishTo(t *testing.T, ctx context.Context, client *sqs.Client, queue string, n int) []outbox.Result {
	t.Helper()
	p, err := sqsbroker.NewPublisher(sqsbroker.PublisherConfig{Client: client, Queue: queue})
	if err != nil {
		t.Fatal(err)
	}
	msgs := make([]outbox.Message, n)
	for i := range msgs {
		id, err := outbox.NewID()
		if err != nil {
			t.Fatal(err)
		}
		msgs[i] = outbox.Message{ID: id, Topic: "orders", Payload: []byte("{}")}
	}
	return p.Publish(ctx, msgs)
}

// What SQS answers to the whole request, as it goes over the wire.
func TestErrorsOfRequests(t *testing.T) {
	const template = "https://sqs.us-east-1.amazonaws.com/123456789012/{topic}"
	for _, c := range []struct {
		name         string
		status       int
		code, query  string
		fixed, taken class // with a fixed queue, and with one named by the message
	}{
		{"missing queue", 400, "com.amazonaws.sqs#QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue;Sender", refused, permanent},
		{"missing queue, older code", 400, "AWS.SimpleQueueService.NonExistentQueue", "", refused, permanent},
		{"access denied", 403, "com.amazon.coral.service#AccessDeniedException", "AccessDenied;Sender", refused, refused},
		{"expired token", 403, "com.amazon.coral.service#ExpiredTokenException", "ExpiredToken;Sender", refused, refused},
		{"unknown key", 403, "com.amazon.coral.service#UnrecognizedClientException", "InvalidClientTokenId;Sender", refused, refused},
		{"wrong secret", 403, "com.amazon.coral.service#InvalidSignatureException", "SignatureDoesNotMatch;Sender", refused, refused},
		{"wrong clock", 400, "com.amazon.coral.service#RequestExpired", "", refused, refused},
		{"opt in", 403, "OptInRequired", "", refused, refused},
		{"key of the queue denied", 400, "com.amazonaws.sqs#KmsAccessDenied", "KMS.AccessDeniedException;Sender", refused, refused},
		{"key of the queue disabled", 400, "com.amazonaws.sqs#KmsDisabled", "KMS.DisabledException;Sender", refused, refused},
		{"key of the queue throttled", 400, "com.amazonaws.sqs#KmsThrottled", "KMS.ThrottlingException;Sender", unavailable, unavailable},
		{"plain HTTP", 400, "com.amazonaws.sqs#InvalidSecurity", "", refused, refused},
		{"address of another region", 404, "com.amazonaws.sqs#InvalidAddress", "", refused, refused},
		{"throttled", 400, "com.amazon.coral.availability#ThrottlingException", "", unavailable, unavailable},
		{"throttled by the queue", 403, "com.amazonaws.sqs#RequestThrottled", "RequestThrottled;Sender", unavailable, unavailable},
		{"too many in flight", 403, "com.amazonaws.sqs#OverLimit", "OverLimit;Sender", unavailable, unavailable},
		{"throttled without a word", 429, "", "", unavailable, unavailable},
		{"internal", 500, "com.amazon.coral.service#InternalFailure", "InternalFailure;Receiver", unavailable, unavailable},
		{"unavailable", 503, "com.amazon.coral.service#ServiceUnavailableException", "ServiceUnavailable;Receiver", unavailable, unavailable},
		{"bad gateway", 502, "", "", unavailable, unavailable},
		{"gateway time-out", 504, "", "", timedOut, timedOut},
		{"request time-out", 400, "RequestTimeout", "", timedOut, timedOut},
		{"forbidden without a word", 403, "", "", refused, refused},
		{"not SQS at all", 404, "", "", unavailable, unavailable},
		{"contents", 400, "com.amazonaws.sqs#InvalidMessageContents", "", permanent, permanent},
		{"too long", 400, "com.amazonaws.sqs#BatchRequestTooLong", "AWS.SimpleQueueService.BatchRequestTooLong;Sender", permanent, permanent},
		{"a parameter, nobody knows which", 400, "com.amazonaws.sqs#InvalidParameterValueException", "InvalidParameterValue;Sender", retryable, retryable},
		{"an unknown code", 400, "com.amazonaws.sqs#NewIn2031", "", retryable, retryable},
	} {
		t.Run(c.name, func(t *testing.T) {
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests++
				w.Header().Set("Content-Type", "application/x-amz-json-1.0")
				if c.query != "" {
					w.Header().Set("X-Amzn-Query-Error", c.query)
				}
				w.WriteHeader(c.status)
				if c.code != "" {
					fmt.Fprintf(w, `{"__type":%q,"message":"no"}`, c.code)
				}
			}))
			defer server.Close()
			for queue, want := range map[string]class{queueURL: c.fixed, template: c.taken} {
				result := publishTo(t, t.Context(), clientFor(server.URL), queue, 1)[0]
				if result.Err == nil {
					t.Fatal("acknowledged")
				}
				if got := classOf(result.Err); got != want {
					t.Errorf("%s: %+v, want %+v: %v", queue, got, want, result.Err)
				}
			}
			if requests != 2 {
				t.Errorf("%d requests for 2 calls", requests)
			}
		})
	}
}

// What SQS answers for one entry of three, alone and while others pass.
func TestErrorsOfEntries(t *testing.T) {
	for _, c := range []struct {
		code          string
		sender        bool
		others, alone class
	}{
		{"InvalidMessageContents", true, permanent, permanent},
		{"InvalidParameterValue", true, permanent, permanent},
		{"InvalidAttributeValue", true, permanent, permanent},
		{"MissingParameter", true, permanent, permanent},
		{"AWS.SimpleQueueService.NonExistentQueue", true, refused, refused},
		{"AccessDenied", true, refused, refused},
		{"KMS.DisabledException", true, refused, refused},
		{"RequestThrottled", true, unavailable, unavailable},
		{"ThrottlingException", false, unavailable, unavailable},
		{"InternalError", false, retryable, unavailable},
		{"ServiceUnavailable", false, retryable, unavailable},
		{"NewIn2031", true, retryable, retryable},
		{"NewIn2031", false, retryable, unavailable},
	} {
		failed := fmt.Sprintf(`{"Id":"0","Code":%q,"SenderFault":%v,"Message":"no"}`, c.code, c.sender)
		var answer string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
		answer = `{"Successful":[{"Id":"1","MessageId":"b"}],"Failed":[` + failed + `]}`
		results := publishTo(t, t.Context(), clientFor(server.URL), queueURL, 3)
		if got := classOf(results[0].Err); got != c.others {
			t.Errorf("%s, others pass: %+v, want %+v: %v", c.code, got, c.others, results[0].Err)
		}
		if results[1].Err != nil || results[1].BrokerID != "b" {
			t.Errorf("%s: the neighbour has %+v", c.code, results[1])
		}
		if results[2].Err == nil || classOf(results[2].Err) != retryable {
			t.Errorf("%s: an entry without an answer has %v", c.code, results[2].Err)
		}
		answer = `{"Failed":[` + failed + `]}`
		if got := classOf(publishTo(t, t.Context(), clientFor(server.URL), queueURL, 1)[0].Err); got != c.alone {
			t.Errorf("%s, alone: %+v, want %+v", c.code, got, c.alone)
		}
		server.Close()
	}
}

// An answer that says nothing on any message is somebody else's.
func TestAnswerAboutNothing(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"status":"up"}`) }))
	defer server.Close()
	for i, result := range publishTo(t, t.Context(), clientFor(server.URL), queueURL, 3) {
		if got := classOf(result.Err); result.Err == nil || got != unavailable {
			t.Errorf("message %d: %+v, want %+v: %v", i, got, unavailable, result.Err)
		}
	}
}

// What the network does.
func TestErrorsOfTransport(t *testing.T) {
	dialling := func(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(*sqs.Options) {
		return func(o *sqs.Options) { o.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: dial}} }
	}
	ask := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the name server is away")
	}}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	resetting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := http.NewResponseController(w).Hijack()
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}))
	defer resetting.Close()
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"Successful":[`)
	}))
	defer cut.Close()
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	defer garbage.Close()
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer hanging.Close()
	strange := httptest.NewTLSServer(http.NotFoundHandler())
	defer strange.Close()

	background := func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) }
	for _, c := range []struct {
		name   string
		client *sqs.Client
		ctx    func() (context.Context, context.CancelFunc)
		want   class
	}{
		{"refused connection", clientFor("http://" + closed.Addr().String()), background, unavailable},
		{"reset", clientFor(resetting.URL), background, unavailable},
		{"answer cut off", clientFor(cut.URL), background, unavailable},
		{"answer that is none", clientFor(garbage.URL), background, unavailable},
		{"no such host", clientFor("http://sqs.example", dialling(func(ctx context.Context, _, _ string) (net.Conn, error) {
			return nil, &net.DNSError{Err: "no such host", Name: "sqs.example", IsNotFound: true}
		})), background, refused},
		{"a region that is none", clientFor(hanging.URL, func(o *sqs.Options) { o.Region = "eu west" }), background, refused},
		{"no region", clientFor(hanging.URL, func(o *sqs.Options) { o.Region, o.BaseEndpoint = "", nil }), background, refused},
		{"name server away", clientFor("http://sqs.example", dialling((&net.Dialer{Resolver: ask}).DialContext)), background, unavailable},
		{"name server slow", clientFor("http://sqs.example", dialling(func(ctx context.Context, _, _ string) (net.Conn, error) {
			return nil, &net.DNSError{Err: "i/o timeout", Name: "sqs.example", IsTimeout: true}
		})), background, unavailable},
		{"the client's own time-out", clientFor(hanging.URL, func(o *sqs.Options) { o.HTTPClient = &http.Client{Timeout: 50 * time.Millisecond} }), background, timedOut},
		{"deadline", clientFor(hanging.URL), func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 50*time.Millisecond)
		}, timedOut},
		{"cancelled", clientFor(hanging.URL), func() (context.Context, context.CancelFunc) {
			ctx, cancel := background()
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		}, unavailable},
		{"deadline between the SDK's attempts", clientFor(resetting.URL, func(o *sqs.Options) { o.RetryMaxAttempts = 100 }), func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 100*time.Millisecond)
		}, timedOut},
		{"the SDK's attempts used up", clientFor("http://"+closed.Addr().String(), func(o *sqs.Options) { o.RetryMaxAttempts = 2 }), background, unavailable},
		{"certificate of nobody we know", clientFor(strange.URL), background, refused},
		{"no credentials", clientFor(hanging.URL, func(o *sqs.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{}, errors.New("no role found")
			})
		}), background, refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := c.ctx()
			defer cancel()
			for i, result := range publishTo(t, ctx, c.client, queueURL, 3) {
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
