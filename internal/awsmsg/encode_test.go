package awsmsg

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/outbox"
)

var testID = uuid.MustParse("018f3c2e-7b1a-7c3d-9e4f-5a6b7c8d9e0f")

func order() outbox.Message {
	return outbox.Message{
		ID: testID, Topic: "orders", Key: "order-1", Type: "order.created",
		ContentType: "application/json", Payload: []byte(`{"n":1}`),
	}
}

// seen is the attributes as TYPE:VALUE.
func seen(e Encoded) map[string]string {
	got := map[string]string{}
	for name, a := range e.Attrs {
		got[name] = a.DataType() + ":" + a.Value
	}
	return got
}

func headers(n int) map[string]string {
	h := map[string]string{}
	for i := range n {
		h[fmt.Sprintf("h%d", i)] = fmt.Sprint(i)
	}
	return h
}

func TestAttributes(t *testing.T) {
	base := map[string]string{
		"EventType": "String:order.created", "postrider-id": "String:" + testID.String(), "postrider-topic": "String:orders",
		"postrider-key": "String:order-1", "content-type": "String:application/json",
	}
	with := func(more map[string]string) map[string]string {
		all := map[string]string{}
		for _, m := range []map[string]string{base, more} {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	for _, c := range []struct {
		name    string
		headers map[string]string
		want    map[string]string
	}{
		{"no headers", nil, nil},
		{"headers that fit", map[string]string{"a": "1", "traceparent": "00-x", "tracestate": "v=1", "baggage": "k=v"},
			map[string]string{"a": "String:1", "traceparent": "String:00-x", "tracestate": "String:v=1", "baggage": "String:k=v"}},
		{"the tenth attribute", headers(5), map[string]string{"h0": "String:0", "h1": "String:1", "h2": "String:2", "h3": "String:3", "h4": "String:4"}},
		{"an eleventh", headers(6), map[string]string{"postrider-headers": `String:{"h0":"0","h1":"1","h2":"2","h3":"3","h4":"4","h5":"5"}`}},
		{"trace context stays visible", map[string]string{"traceparent": "00-x", "empty": ""},
			map[string]string{"traceparent": "String:00-x", "postrider-headers": `String:{"empty":"","traceparent":"00-x"}`}},
		{"an empty value", map[string]string{"a": ""}, map[string]string{"postrider-headers": `String:{"a":""}`}},
		{"a name that SQS refuses", map[string]string{"a b": "1"}, map[string]string{"postrider-headers": `String:{"a b":"1"}`}},
		{"AWS's own prefix", map[string]string{"aWs.x": "1"}, map[string]string{"postrider-headers": `String:{"aWs.x":"1"}`}},
		{"dots in a row", map[string]string{"a..b": "1"}, map[string]string{"postrider-headers": `String:{"a..b":"1"}`}},
		{"one of our names", map[string]string{"content-type": "x"}, map[string]string{"postrider-headers": `String:{"content-type":"x"}`}},
		{"characters that SQS refuses", map[string]string{"a": "\x00\uffff"}, map[string]string{"postrider-headers": `String:{"a":"\u0000\uffff"}`}},
	} {
		m := order()
		m.Headers = c.headers
		e, err := Encode(&m, Raw, "SQS")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(with(c.want), seen(e)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if e.Body != `{"n":1}` {
			t.Errorf("%s: body %q", c.name, e.Body)
		}
	}
}

func TestSizeCountsEverything(t *testing.T) {
	m := outbox.Message{ID: testID, Topic: "orders", Payload: []byte("12345"), Headers: map[string]string{"é": "x"}}
	e, err := Encode(&m, Raw, "SQS")
	if err != nil {
		t.Fatal(err)
	}
	want := len("12345") + len("postrider-id"+"String") + 36 + len("postrider-topic"+"String"+"orders") +
		len("postrider-headers"+"String"+`{"é":"x"}`)
	if e.Size != want {
		t.Errorf("size %d, want %d", e.Size, want)
	}
	m.Topic = "\x01"
	if e, err = Encode(&m, Base64, "SQS"); err != nil {
		t.Fatal(err)
	}
	want += len("MTIzNDU=") - len("12345") + len("postrider-encoding"+"String"+"base64") - len("orders") + len("\x01")
	if e.Size != want {
		t.Errorf("size %d in base64, want %d", e.Size, want)
	}
}

func TestRefusedTextNamesThePlace(t *testing.T) {
	for _, c := range []struct {
		change func(m *outbox.Message)
		says   string
	}{
		{func(m *outbox.Message) { m.Payload = []byte("ab\x00") }, "payload has the character U+0000 at byte 2"},
		{func(m *outbox.Message) { m.Payload = []byte("é\ufffe") }, "payload has the character U+FFFE at byte 2"},
		{func(m *outbox.Message) { m.Payload = []byte("\xff") }, "payload has byte 0xFF, which is not UTF-8, at byte 0"},
		{func(m *outbox.Message) { m.Payload = []byte("\xed\xa0\x80") }, "payload has byte 0xED, which is not UTF-8, at byte 0"},
		{func(m *outbox.Message) { m.Payload = nil }, "payload is empty"},
		{func(m *outbox.Message) { m.Key = "k\x1b" }, "key has the character U+001B at byte 1"},
		{func(m *outbox.Message) { m.Type = "\uffff" }, "type has the character U+FFFF at byte 0"},
		{func(m *outbox.Message) { m.Topic = "\x01" }, "topic has"},
		{func(m *outbox.Message) { m.ContentType = "\x01" }, "content type has"},
	} {
		m := order()
		c.change(&m)
		_, err := Encode(&m, Raw, "SQS")
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "encoding: base64") {
			t.Errorf("%v, want %q and the remedy", err, c.says)
		}
		if _, err := Encode(&m, Base64, "SQS"); err != nil {
			t.Errorf("base64 mends it not: %v", err)
		}
	}
	for _, fine := range []string{"\t\n\r ~", "\u007f\u0085\u2028", "\ud7ff\ue000\ufffd", "\U00010000\U0010FFFF", "🐎"} {
		if r := firstRefused(fine); r != nil {
			t.Errorf("%q: %+v", fine, r)
		}
	}
}

func TestGroupID(t *testing.T) {
	punctuation := "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
	for key, same := range map[string]bool{
		"a": true, punctuation: true, strings.Repeat("x", 128): true,
		strings.Repeat("x", 129): false, "a b": false, "é": false, "\t": false, "\x7f": false,
	} {
		m := outbox.Message{ID: testID, Key: key}
		got := GroupID(&m)
		if (got == key) != same || len(got) > 128 || len(got) == 0 {
			t.Errorf("key %q has group %q", key, got)
		}
		if again := GroupID(&outbox.Message{Key: key}); again != got {
			t.Errorf("key %q has two groups", key)
		}
	}
	if got := GroupID(&outbox.Message{ID: testID}); got != testID.String() {
		t.Errorf("no key: group %q", got)
	}
}

// What is encoded is what is decoded, within what SQS takes.
func TestAnyMessageSurvives(t *testing.T) {
	text := rapid.Map(rapid.String(), func(s string) string { return strings.ToValidUTF8(s, "?") })
	rapid.Check(t, func(t *rapid.T) {
		m := outbox.Message{
			ID: testID, Topic: "t" + text.Draw(t, "topic"), Key: text.Draw(t, "key"), Type: text.Draw(t, "type"),
			ContentType: text.Draw(t, "content type"), Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
			Headers: rapid.MapOfN(rapid.OneOf(text, rapid.SampledFrom([]string{"traceparent", "EventType", "a", "b.c", "Amazon.x", "postrider-id"})).
				Filter(func(s string) bool { return s != "" }), text, 0, 12).Draw(t, "headers"),
		}
		e, err := Encode(&m, rapid.SampledFrom([]Encoding{Raw, Base64}).Draw(t, "encoding"), "SQS")
		if err != nil {
			return // TestRefusedTextNamesThePlace
		}
		if len(e.Attrs) > MaxAttributes || e.Body == "" || firstRefused(e.Body) != nil {
			t.Fatalf("SQS refuses it: %d attributes, body %q", len(e.Attrs), e.Body)
		}
		for name, a := range e.Attrs {
			if !validAttributeName(name) || a.Value == "" || !a.Binary && (firstRefused(a.Value) != nil || !utf8.ValidString(a.Value)) {
				t.Fatalf("SQS refuses the attribute %q: %+v", name, a)
			}
		}
		got, err := Decode(e.Body, e.Attrs)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("changed (-want +got):\n%s", diff)
		}
	})
}
