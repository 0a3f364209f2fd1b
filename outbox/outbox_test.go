package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

type tx struct{}

// recorder keeps what it was asked to insert.
type recorder struct {
	msgs []Message
	err  error
}

func (r *recorder) Insert(_ context.Context, _ *tx, msgs []Message) error {
	r.msgs = append(r.msgs, msgs...)
	return r.err
}

type locker struct {
	recorder
	keys []string
}

func (l *locker) LockKeys(_ context.Context, _ *tx, keys []string) error {
	l.keys = append(l.keys, keys...)
	return l.err
}

func TestEnqueueFillsInAndLeavesTheCallersAlone(t *testing.T) {
	id := uuid.MustParse("0198f2f0-0000-7000-8000-000000000001")
	given := []Message{{Topic: "a", ContentType: "text/plain", ID: id}, {Topic: "b", Payload: []byte{0, 0xff}}}
	var r recorder
	if err := NewWriter[*tx](&r).Enqueue(t.Context(), &tx{}, given...); err != nil {
		t.Fatal(err)
	}
	if len(r.msgs) != 2 || r.msgs[0].ID != id || r.msgs[0].ContentType != "text/plain" || r.msgs[0].Topic != "a" {
		t.Errorf("enqueued %+v", r.msgs)
	}
	if m := r.msgs[1]; m.ID.Version() != 7 || m.ContentType != DefaultContentType || string(m.Payload) != "\x00\xff" {
		t.Errorf("enqueued %+v", m)
	}
	if given[1].ID != uuid.Nil || given[1].ContentType != "" {
		t.Errorf("the caller's message became %+v", given[1])
	}
}

func TestEnqueueIsAllOrNothing(t *testing.T) {
	var r recorder
	w := NewWriter[*tx](&r)
	err := w.Enqueue(t.Context(), &tx{}, Message{Topic: "good"}, Message{}, Message{Topic: "bad\x00"})
	if err == nil || !strings.Contains(err.Error(), "message 1: topic is empty") || !strings.Contains(err.Error(), "message 2: topic contains a NUL") {
		t.Errorf("error %v", err)
	}
	if len(r.msgs) > 0 {
		t.Errorf("enqueued %v", r.msgs)
	}
	if err := w.Enqueue(t.Context(), &tx{}); err != nil || len(r.msgs) > 0 {
		t.Errorf("nothing to enqueue: %v, %v", err, r.msgs)
	}
	r.err = errors.New("the table is gone")
	if err := w.Enqueue(t.Context(), &tx{}, Message{Topic: "t"}); !errors.Is(err, r.err) {
		t.Errorf("error %v", err)
	}
}

func TestLockKeys(t *testing.T) {
	var l locker
	w := NewWriter[*tx](&l)
	if err := w.LockKeys(t.Context(), &tx{}); err != nil || l.keys != nil {
		t.Errorf("no keys: %v, %v", err, l.keys)
	}
	if err := w.LockKeys(t.Context(), &tx{}, "b", "a"); err != nil || len(l.keys) != 2 {
		t.Errorf("locked %v, %v", l.keys, err)
	}
	if err := NewWriter[*tx](&recorder{}).LockKeys(t.Context(), &tx{}, "a"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without the capability: %v", err)
	}
}

func TestValidate(t *testing.T) {
	now := time.Now()
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, test := range []struct {
		name string
		m    Message
		want []string // none: valid
	}{
		{"least", Message{Topic: "t"}, nil},
		{"every limit", Message{
			Topic: long(MaxTopic), Key: long(MaxKey), Type: long(MaxType), ContentType: long(MaxContentType),
			Headers: map[string]string{"n": long(MaxHeaders - 1)}, Payload: make([]byte, MaxPayload),
		}, nil},
		{"odd but valid", Message{Topic: "🐎", Key: " ", Headers: map[string]string{"h": "a\x00b", "e": ""}}, nil},
		{"beyond every limit", Message{
			Topic: long(MaxTopic + 1), Key: long(MaxKey + 1), Type: long(MaxType + 1), ContentType: long(MaxContentType + 1),
			Headers: map[string]string{"n": long(MaxHeaders)}, Payload: make([]byte, MaxPayload+1),
		}, []string{"topic has 256", "key has 1025", "type has 256", "content type has 256", "headers have 65537", "payload has 16777217"}},
		{"no topic", Message{}, []string{"topic is empty"}},
		{"not UTF-8", Message{Topic: "\xff", Key: "\xff", Headers: map[string]string{"h": "\xff"}}, []string{"topic is not", "key is not", `header "h" is not`}},
		{"nameless header", Message{Topic: "t", Headers: map[string]string{"": "v"}}, []string{"empty name"}},
		{"expires before it is due", Message{Topic: "t", NotBefore: now, Expires: now}, []string{"could never be sent"}},
		{"expires after it is due", Message{Topic: "t", NotBefore: now, Expires: now.Add(1)}, nil},
	} {
		err := test.m.Validate()
		if (err == nil) != (test.want == nil) {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", test.name, err, want)
			}
		}
	}
}

func TestClasses(t *testing.T) {
	cause := errors.New("cause")
	for _, test := range []struct {
		err            error
		class          Class
		timeout, alarm bool
	}{
		{cause, ClassRetryable, false, false},
		{Retryable(cause), ClassRetryable, false, false},
		{Unavailable(cause), ClassUnavailable, false, false},
		{TimedOut(cause), ClassUnavailable, true, false},
		{Refused(cause), ClassUnavailable, false, true},
		{Permanent(cause), ClassPermanent, false, false},
		{fmt.Errorf("wrapped: %w", Permanent(cause)), ClassPermanent, false, false},
		{Permanent(context.DeadlineExceeded), ClassPermanent, false, false},
		{fmt.Errorf("wrapped: %w", context.DeadlineExceeded), ClassUnavailable, true, false},
		{context.Canceled, ClassUnavailable, false, false},
		{Unsent(TimedOut(cause)), ClassUnavailable, true, false},
	} {
		if ClassOf(test.err) != test.class || IsTimeout(test.err) != test.timeout || IsAlarm(test.err) != test.alarm {
			t.Errorf("%#v is %s, time-out %t, alarm %t", test.err, ClassOf(test.err), IsTimeout(test.err), IsAlarm(test.err))
		}
	}
	if err := Permanent(cause); !errors.Is(err, cause) || err.Error() != "cause" {
		t.Errorf("the cause is lost: %v", err)
	}
	if IsUnsent(TimedOut(cause)) || !IsUnsent(Unsent(TimedOut(cause))) {
		t.Error("what was not sent is not told from what may have been")
	}
}
