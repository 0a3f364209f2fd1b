package sqsbroker

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/awsmsg"
	"github.com/postrider/postrider/outbox"
)

var testID = uuid.MustParse("018f3c2e-7b1a-7c3d-9e4f-5a6b7c8d9e0f")

const snsID = "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324"

// attrs makes attributes of name and value in turn.
func attrs(pairs ...string) map[string]types.MessageAttributeValue {
	out := map[string]types.MessageAttributeValue{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = attributeValue(awsmsg.Attribute{Value: pairs[i+1]})
	}
	return out
}

func consumer(envelope bool) *Consumer {
	return &Consumer{cfg: ConsumerConfig{Envelope: envelope}, queue: queueRef{name: "queue"}}
}

// enveloped is the body that SNS makes.
func enveloped(t *testing.T, message string, attributes map[string]any, change func(map[string]any)) string {
	t.Helper()
	object := map[string]any{
		"Type": "Notification", "MessageId": snsID, "TopicArn": "arn:aws:sns:us-east-1:123456789012:orders",
		"Message": message, "Timestamp": "2026-07-30T20:27:10.628Z", "SignatureVersion": "1", "Signature": "x",
		"SigningCertURL": "https://sns.us-east-1.amazonaws.com/x.pem", "UnsubscribeURL": "https://sns.us-east-1.amazonaws.com/?x",
		"MessageAttributes": attributes,
	}
	if change != nil {
		change(object)
	}
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func text(value string) any { return map[string]any{"Type": "String", "Value": value} }

func same(t *testing.T, got, want outbox.Message) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeRefusesOtherBytes(t *testing.T) {
	if _, err := consumer(false).decode(&types.Message{Body: aws.String("x"), MD5OfBody: aws.String("0"), MessageId: aws.String("m")}); err == nil {
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

func TestForeignMessage(t *testing.T) {
	in := &types.Message{
		Body: aws.String("hello"), MessageId: aws.String(snsID), MessageAttributes: attrs("color", "blue"),
		Attributes: map[string]string{"MessageGroupId": "g"},
	}
	got, err := consumer(false).decode(in)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, outbox.Message{ID: uuid.MustParse(snsID), Topic: "queue", Key: "g", Payload: []byte("hello"), Headers: map[string]string{"color": "blue"}})
}

func TestEnvelope(t *testing.T) {
	for _, c := range []struct {
		name string
		in   types.Message
		want outbox.Message
	}{
		{
			"one of ours",
			types.Message{Body: aws.String(enveloped(t, `{"n":"<é🐎>"}`, map[string]any{
				"postrider-id": text(testID.String()), "postrider-topic": text("orders"), "postrider-key": text("k"),
				"EventType": text("order.created"), "content-type": text("text/plain"), "traceparent": text("00-x"),
			}, nil))},
			outbox.Message{
				ID: testID, Topic: "orders", Key: "k", Type: "order.created", ContentType: "text/plain",
				Payload: []byte(`{"n":"<é🐎>"}`), Headers: map[string]string{"traceparent": "00-x"},
			},
		},
		{
			"base64, with a binary attribute",
			types.Message{Body: aws.String(enveloped(t, "AAE=", map[string]any{
				"postrider-id": text(testID.String()), "postrider-topic": text("orders"), "postrider-encoding": text("base64"),
				"postrider-key": map[string]any{"Type": "Binary", "Value": "AQI="},
			}, nil))},
			outbox.Message{ID: testID, Topic: "orders", Key: "\x01\x02", Payload: []byte{0, 1}},
		},
		{
			"another program's",
			types.Message{
				Body: aws.String(enveloped(t, "hello", map[string]any{"color": text("blue")}, nil)), MessageId: aws.String(testID.String()),
				MessageAttributes: attrs("ignored", "x"), Attributes: map[string]string{"MessageGroupId": "g"},
			},
			outbox.Message{ID: uuid.MustParse(snsID), Topic: "queue", Key: "g", Payload: []byte("hello"), Headers: map[string]string{"color": "blue"}},
		},
		{
			"delivered raw meanwhile, with a payload that is an envelope itself",
			types.Message{
				Body:              aws.String(enveloped(t, "inner", map[string]any{"postrider-id": text(snsID)}, nil)),
				MessageAttributes: attrs("postrider-id", testID.String(), "postrider-topic", "orders"),
			},
			outbox.Message{ID: testID, Topic: "orders", Payload: []byte(enveloped(t, "inner", map[string]any{"postrider-id": text(snsID)}, nil))},
		},
	} {
		got, err := consumer(true).decode(&c.in)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		t.Run(c.name, func(t *testing.T) { same(t, got, c.want) })
	}
}

// Without the option no payload is ever taken for an envelope.
func TestNoEnvelopeUnasked(t *testing.T) {
	body := enveloped(t, "inner", map[string]any{"postrider-id": text(testID.String()), "postrider-topic": text("other")}, nil)
	got, err := consumer(false).decode(&types.Message{Body: &body, MessageId: aws.String(snsID)})
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, outbox.Message{ID: uuid.MustParse(snsID), Topic: "queue", Payload: []byte(body)})
}

func TestNoEnvelope(t *testing.T) {
	without := func(name string) string {
		return enveloped(t, "m", nil, func(object map[string]any) { delete(object, name) })
	}
	for body, says := range map[string]string{
		"hello":              "not the envelope",
		"[]":                 "not the envelope",
		`{"orderId":"1"}`:    "not the envelope",
		without("Type"):      "not the envelope",
		without("MessageId"): "not the envelope",
		without("TopicArn"):  "not the envelope",
		without("Message"):   "not the envelope",
		enveloped(t, "m", nil, func(object map[string]any) { object["Type"] = "SubscriptionConfirmation" }):       "SubscriptionConfirmation",
		enveloped(t, "m", map[string]any{"a": map[string]any{"Type": "Binary", "Value": "!"}}, nil):               "attribute a",
		enveloped(t, "m", map[string]any{"postrider-id": text("no id")}, nil):                                     "postrider-id",
		enveloped(t, "!", map[string]any{"postrider-id": text(snsID), "postrider-encoding": text("base64")}, nil): "body",
	} {
		_, err := consumer(true).decode(&types.Message{Body: &body, MessageId: aws.String(snsID)})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", body, err, says)
		}
	}
}
