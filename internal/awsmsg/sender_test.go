package awsmsg

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
)

// hangs is a broker that answers no question for an address, or no request.
type hangs struct{ resolve, send bool }

func (h hangs) Resolve(ctx context.Context, destination string) (string, error) {
	if h.resolve {
		<-ctx.Done()
		return "", Classify(ctx, ctx.Err())
	}
	return destination, nil
}

func (h hangs) Send(ctx context.Context, _ string, _ []Entry) (Answer, error) {
	<-ctx.Done()
	return Answer{}, ctx.Err()
}

// Whether a message can have arrived is said of each: not before the address
// is known, not if its request never began, and not behind one of its key.
func TestWhatWasNotSentSaysSo(t *testing.T) {
	template, err := NewTemplate("queue", "q.fifo", func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		broker hangs
		cancel bool // before the call
		unsent []bool
	}{
		"address": {hangs{resolve: true}, false, []bool{true, true}},
		"request": {hangs{send: true}, false, []bool{false, true}},
		"ended":   {hangs{}, true, []bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Sender{Package: "test", Service: "SQS", Kind: "queue", Broker: test.broker, Template: template,
					Encoding: Raw, Concurrency: 1, MessageBytes: 1 << 20, RequestBytes: 1 << 20}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if test.cancel {
					cancel()
				}
				results := s.Publish(ctx, []outbox.Message{{Topic: "t", Key: "k", Payload: []byte("{}")}, {Topic: "t", Key: "k", Payload: []byte("{}")}})
				for i, r := range results {
					if outbox.ClassOf(r.Err) != outbox.ClassUnavailable || outbox.IsUnsent(r.Err) != test.unsent[i] {
						t.Errorf("message %d: unsent %v, want %v: %v", i, outbox.IsUnsent(r.Err), test.unsent[i], r.Err)
					}
					if want := errors.Is(ctx.Err(), context.DeadlineExceeded); outbox.IsTimeout(r.Err) != want {
						t.Errorf("message %d: timeout %v, want %v", i, !want, want)
					}
				}
			})
		})
	}
}
