package conformance

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// differ compares messages byte for byte; no bytes and no headers are the same
// whether nil or empty. Times are equal as instants, in microseconds.
func differ(want, got outbox.Message) string {
	want.NotBefore, want.Expires = want.NotBefore.Truncate(time.Microsecond), want.Expires.Truncate(time.Microsecond)
	if bytes.Equal(want.Payload, got.Payload) {
		want.Payload, got.Payload = nil, nil // a megabyte takes cmp seconds
	}
	return cmp.Diff(want, got, cmpopts.EquateEmpty())
}

// byteTests: messages arrive as they were written.
func byteTests[Tx any]() []storeTest[Tx] {
	return []storeTest[Tx]{
		{name: "awkward messages", run: func(r *storeRig[Tx]) {
			all := awkward()
			r.giveIDs(all)
			r.enqueue(all...)
			r.roundTrip(r.acquire(), all)
		}},
		{name: "any messages", alone: true, run: func(r *storeRig[Tx]) {
			lease := r.acquire()
			now := r.now()
			properties(r.t, 20, 1000, func(t *rapid.T) {
				r := r.in(t)
				all := rapid.SliceOfN(anyMessage(now), 1, 4).Draw(t, "messages")
				r.giveIDs(all)
				r.enqueue(all...)
				r.roundTrip(lease, all)
			})
		}},
	}
}

// giveIDs makes ids known that the Writer would make.
func (r *storeRig[Tx]) giveIDs(msgs []outbox.Message) {
	r.tb.Helper()
	for i := range msgs {
		if msgs[i].ID != uuid.Nil {
			continue
		}
		id, err := outbox.NewID()
		r.ok("make an id", err)
		msgs[i].ID = id
	}
}

// roundTrip receives the messages from the log, has each retried, receives them
// once more, and compares.
func (r *storeRig[Tx]) roundTrip(lease relay.Lease, want []outbox.Message) {
	r.tb.Helper()
	byID := map[uuid.UUID]outbox.Message{}
	for _, m := range want {
		if m.ContentType == "" {
			m.ContentType = outbox.DefaultContentType
		}
		byID[m.ID] = m
	}
	for _, from := range []string{"log", "parked set"} {
		var outcomes []relay.Outcome
		for _, d := range r.take(lease, len(want)) {
			m := byID[d.Message.ID]
			m.CreatedAt = d.Message.CreatedAt
			if diff := differ(m, d.Message); diff != "" {
				r.tb.Fatalf("a message came changed from the %s (-want +got):\n%s", from, diff)
			}
			if from == "log" {
				outcomes = append(outcomes, retrying(d, 0))
			} else {
				outcomes = append(outcomes, sent(d)...)
			}
		}
		if len(outcomes) != len(byID) {
			r.tb.Fatalf("%d deliveries for %d ids", len(outcomes), len(byID))
		}
		r.settle(lease, outcomes...)
	}
}

// awkward is what has broken other systems.
func awkward() []outbox.Message {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	payloads := map[string][]byte{
		"nil": nil, "empty": {}, "nul": {0}, "every byte": every, "not utf-8": {0xff, 0xfe, 0xc3, 0x28},
		"int64":     []byte(`{"n":9223372036854775807,"m":-9223372036854775808,"f":1e400}`),
		"emoji":     []byte("🐎📮"),
		"json text": []byte(`"\u0000"`),
		"large":     []byte(strings.Repeat("0123456789abcdef", 1<<16)),
		"sql":       []byte(`'); DROP TABLE postrider_log; --`),
	}
	var all []outbox.Message
	for name, payload := range payloads {
		m := message("", name)
		m.Payload = payload
		all = append(all, m)
	}
	headers := []map[string]string{
		nil, {}, {"empty": ""}, {"nul": "a\x00b", "\x00": "\x00"}, {"🐎": "📮", "é": "e\u0301"},
		{"quote": `"'\`, "control": "\x01\x1f\x7f\u0085\u2028"}, {"null": "null", "number": "9007199254740993"},
		{"A": "upper", "a": "lower"}, {"last": "\U0010FFFF\uFFFD\uFFFF"}, {"html": "<a href='x'>&amp;</a>"},
	}
	for i, h := range headers {
		m := message("", fmt.Sprint("headers ", i))
		m.Headers = h
		all = append(all, m)
	}
	for _, text := range []string{" ", "a b", `"'\%_`, "🐎", "e\u0301", "\x01\x7f", "NULL", "0", strings.Repeat("x", outbox.MaxTopic)} {
		m := message("", text)
		m.Topic, m.Key, m.ContentType = text, text, text
		all = append(all, m)
	}
	for i, id := range []uuid.UUID{uuid.Max, {15: 1}, {0: 1}} {
		m := message("", fmt.Sprint("id ", i))
		m.ID = id
		all = append(all, m)
	}
	whole := message(strings.Repeat("é", outbox.MaxKey/2), "")
	whole.NotBefore = time.UnixMicro(1).In(time.FixedZone("odd", 12345))
	whole.Expires = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)
	return append(all, whole)
}

// anyMessage draws messages that are due and not expired by a clock that shows
// about now.
func anyMessage(now time.Time) *rapid.Generator[outbox.Message] {
	text := func(max int) *rapid.Generator[string] {
		return rapid.Map(rapid.StringOfN(rapid.Rune(), 0, 40, max), func(s string) string {
			return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "0"), "?")
		})
	}
	header := rapid.Map(rapid.StringOfN(rapid.OneOf(rapid.Rune(), rapid.Just(rune(0))), 0, 20, 200), func(s string) string {
		return strings.ToValidUTF8(s, "?")
	})
	name := header.Filter(func(s string) bool { return s != "" })
	return rapid.Custom(func(t *rapid.T) outbox.Message {
		m := outbox.Message{
			Topic:       text(outbox.MaxTopic).Filter(func(s string) bool { return s != "" }).Draw(t, "topic"),
			Key:         text(outbox.MaxKey).Draw(t, "key"),
			Type:        text(outbox.MaxType).Draw(t, "type"),
			ContentType: text(outbox.MaxContentType).Draw(t, "content type"),
			Payload:     rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
			Headers:     rapid.MapOfN(name, header, 0, 5).Draw(t, "headers"),
		}
		if rapid.Bool().Draw(t, "has not-before") {
			m.NotBefore = now.Add(-time.Duration(rapid.Int64Range(0, int64(100*365*24*time.Hour)).Draw(t, "ago")))
		}
		if rapid.Bool().Draw(t, "has expires") {
			m.Expires = now.Add(time.Hour + time.Duration(rapid.Int64Range(0, int64(200*365*24*time.Hour)).Draw(t, "ahead")))
		}
		return m
	})
}
