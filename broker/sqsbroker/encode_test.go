package sqsbroker

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
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
func seen(e encoded) map[string]string {
	got := map[string]string{}
	for name, v := range e.attrs {
		got[name] = *v.DataType + ":" + text(v)
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
		e, err := encode(&m, Raw)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(with(c.want), seen(e)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if e.body != `{"n":1}` {
			t.Errorf("%s: body %q", c.name, e.body)
		}
	}
}

func TestSizeCountsEverything(t *testing.T) {
	m := outbox.Message{ID: testID, Topic: "orders", Payload: []byte("12345"), Headers: map[string]string{"é": "x"}}
	e, err := encode(&m, Raw)
	if err != nil {
		t.Fatal(err)
	}
	want := len("12345") + len("postrider-id"+"String") + 36 + len("postrider-topic"+"String"+"orders") +
		len("postrider-headers"+"String"+`{"é":"x"}`)
	if e.size != want {
		t.Errorf("size %d, want %d", e.size, want)
	}
	m.Topic = "\x01"
	if e, err = encode(&m, Base64); err != nil {
		t.Fatal(err)
	}
	want += len("MTIzNDU=") - len("12345") + len("postrider-encoding"+"String"+"base64") - len("orders") + len("\x01")
	if e.size != want {
		t.Errorf("size %d in base64, want %d", e.size, want)
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
		_, err := encode(&m, Raw)
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "encoding: base64") {
			t.Errorf("%v, want %q and the remedy", err, c.says)
		}
		if _, err := encode(&m, Base64); err != nil {
			t.Errorf("base64 mends it not: %v", err)
		}
	}
	for _, fine := range []string{"\t\n\r ~", "\u007f\u0085\u2028", "\ud7ff\ue000\ufffd", "\U00010000\U0010FFFF", "🐎"} {
		if err := checkText("payload", fine); err != nil {
			t.Errorf("%q: %v", fine, err)
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
		got := groupID(&m)
		if (got == key) != same || len(got) > 128 || len(got) == 0 {
			t.Errorf("key %q has group %q", key, got)
		}
		if again := groupID(&outbox.Message{Key: key}); again != got {
			t.Errorf("key %q has two groups", key)
		}
	}
	if got := groupID(&outbox.Message{ID: testID}); got != testID.String() {
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
		e, err := encode(&m, rapid.SampledFrom([]Encoding{Raw, Base64}).Draw(t, "encoding"))
		if err != nil {
			return // TestRefusedTextNamesThePlace
		}
		if len(e.attrs) > MaxAttributes || e.body == "" || checkText("", e.body) != nil {
			t.Fatalf("SQS refuses it: %d attributes, body %q", len(e.attrs), e.body)
		}
		for name, v := range e.attrs {
			value := aws.ToString(v.StringValue)
			if !validAttributeName(name) || value == "" && len(v.BinaryValue) == 0 || checkText("", value) != nil || !utf8.ValidString(value) {
				t.Fatalf("SQS refuses the attribute %q: %q", name, value)
			}
		}
		sum := md5.Sum([]byte(e.body))
		got, err := decode(&types.Message{Body: &e.body, MD5OfBody: aws.String(hex.EncodeToString(sum[:])), MessageAttributes: e.attrs}, "queue")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("changed (-want +got):\n%s", diff)
		}
	})
}

func TestDecodeRefusesOtherBytes(t *testing.T) {
	if _, err := decode(&types.Message{Body: aws.String("x"), MD5OfBody: aws.String("0"), MessageId: aws.String("m")}, "queue"); err == nil {
		t.Error("a body with another checksum was taken")
	}
}

func TestForeignID(t *testing.T) {
	if got := foreignID(testID.String()); got != testID {
		t.Errorf("the id of SQS became %v", got)
	}
	one, other := foreignID("not a uuid"), foreignID("nor this")
	if one == other || one == uuid.Nil || one != foreignID("not a uuid") {
		t.Errorf("%v, %v", one, other)
	}
}
