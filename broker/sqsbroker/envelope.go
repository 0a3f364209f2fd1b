package sqsbroker

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/awsmsg"
)

// envelope is what SNS puts a message into where a subscription has no raw
// message delivery.
type envelope struct {
	id      string
	message string
	attrs   map[string]awsmsg.Attribute
}

// https://docs.aws.amazon.com/sns/latest/dg/sns-sqs-as-subscriber.html
const notification = "Notification"

// openEnvelope reads an envelope. The signature is not checked: the queue's
// policy says who may write to it.
func openEnvelope(body string) (envelope, error) {
	var in struct {
		Type, MessageId, TopicArn string
		Message                   *string
		MessageAttributes         map[string]struct{ Type, Value string }
	}
	if err := json.Unmarshal([]byte(body), &in); err != nil {
		return envelope{}, fmt.Errorf("body: it is not the envelope of SNS: %w", err)
	}
	switch {
	case in.Type != notification && strings.HasSuffix(in.Type, "Confirmation"):
		return envelope{}, fmt.Errorf("body: it is SNS's %s for topic %s, not a message", in.Type, in.TopicArn)
	case in.Type != notification || in.MessageId == "" || in.TopicArn == "" || in.Message == nil:
		return envelope{}, fmt.Errorf("body: it is not the envelope of SNS: it lacks Type %q, MessageId, TopicArn or Message", notification)
	}
	e := envelope{id: in.MessageId, message: *in.Message, attrs: make(map[string]awsmsg.Attribute, len(in.MessageAttributes))}
	for name, a := range in.MessageAttributes {
		value := awsmsg.Attribute{Value: a.Value}
		if strings.HasPrefix(a.Type, awsmsg.TypeBinary) {
			bytes, err := base64.StdEncoding.DecodeString(a.Value)
			if err != nil {
				return envelope{}, fmt.Errorf("attribute %s in the envelope of SNS: %w", name, err)
			}
			value = awsmsg.Attribute{Value: string(bytes), Binary: true}
		}
		e.attrs[name] = value
	}
	return e, nil
}
