package sqsbroker_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/broker/sqsbroker"
	"github.com/postrider/postrider/outbox"
)

// oneMessage is an SQS with one message, whose deletion it has carried out a
// while before it says so. Meanwhile it refuses to hide the message any longer.
type oneMessage struct {
	received, deleted bool
	refusals          int
}

const slow = 5 * time.Second

func (q *oneMessage) Do(r *http.Request) (*http.Response, error) {
	body := "{}"
	switch _, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); action {
	case "ReceiveMessage":
		if q.received {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		q.received = true
		body = `{"Messages":[{"MessageId":"m","ReceiptHandle":"r","Body":"{}"}]}`
	case "ChangeMessageVisibilityBatch":
		q.refusals++
		body = `{"Failed":[{"Id":"0","SenderFault":true,"Code":"ReceiptHandleIsInvalid","Message":"The receipt handle is not valid."}]}`
	case "DeleteMessageBatch":
		time.Sleep(slow)
		q.deleted = true
		body = `{"Successful":[{"Id":"0"}]}`
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// consumeOne consumes the message, and returns what was logged meanwhile.
func consumeOne(t *testing.T, q *oneMessage, handle func()) string {
	t.Helper()
	var log bytes.Buffer
	client := clientFor("http://sqs.invalid", func(o *sqs.Options) { o.HTTPClient = q })
	consumer, err := sqsbroker.NewConsumer(sqsbroker.ConsumerConfig{
		Client: client, Queue: queueURL, Handlers: 1, VisibilityTimeout: 3 * time.Second,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	err = consumer.Consume(ctx, func(context.Context, outbox.Message) error {
		handle()
		stop()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if !q.deleted || q.refusals == 0 {
		t.Errorf("deleted: %v, refused to hide it %d times", q.deleted, q.refusals)
	}
	return log.String()
}

// A handled message that is being deleted is hidden no longer without a word:
// that SQS knows its handle no more says that the deletion is under way.
func TestNoWarningAboutWhatIsBeingDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if said := consumeOne(t, &oneMessage{}, func() {}); said != "" {
			t.Error(said)
		}
	})
}

func TestWarningAboutWhatIsBeingHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if said := consumeOne(t, &oneMessage{}, func() { time.Sleep(slow) }); !strings.Contains(said, "may be handed out again") {
			t.Errorf("said %q", said)
		}
	})
}
