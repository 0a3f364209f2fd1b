package sqsbroker

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/awsmsg"
	"github.com/postrider/postrider/outbox"
)

// foreignIDs is the name space of the ids made from message ids of AWS that are
// not UUIDs themselves. It must never change, or messages are handled twice.
var foreignIDs = uuid.MustParse("b7a4c2d1-5d0e-5f0a-9a54-6f1a5f3d3c11")

// decode makes the Message that was enqueued of what SQS handed out.
//
// Messages that others put into the queue are welcome: without postrider-id
// the message id of SQS (or of SNS, in an envelope), which all deliveries of a
// message share, is the id; the group id is the key; the queue's name is the
// topic; every attribute is a header, binary ones in base64 unless they are
// UTF-8.
func (c *Consumer) decode(in *types.Message) (outbox.Message, error) {
	body, attrs, id := aws.ToString(in.Body), attributesOf(in), aws.ToString(in.MessageId)
	if !sameBody(body, in.MD5OfBody) {
		return outbox.Message{}, errors.New("body: it is not the one that SQS made the checksum of")
	}
	if _, raw := attrs[awsmsg.AttrID]; c.cfg.Envelope && !raw {
		e, err := openEnvelope(body)
		if err != nil {
			return outbox.Message{}, err
		}
		body, attrs, id = e.message, e.attrs, e.id
	}
	m, err := awsmsg.Decode(body, attrs)
	if err != nil {
		return m, err
	}
	if _, ours := attrs[awsmsg.AttrID]; !ours {
		m.ID = foreignID(id)
		if m.Key == "" {
			m.Key = in.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
		}
	}
	if m.Topic == "" {
		m.Topic = c.queue.name
	}
	return m, nil
}

func foreignID(awsID string) uuid.UUID {
	if id, err := uuid.Parse(awsID); err == nil {
		return id
	}
	return uuid.NewSHA1(foreignIDs, []byte(awsID))
}

func sameBody(body string, sum *string) bool {
	if sum == nil {
		return true
	}
	own := md5.Sum([]byte(body)) // the checksum that SQS gives
	return hex.EncodeToString(own[:]) == *sum
}

func attributesOf(in *types.Message) map[string]awsmsg.Attribute {
	attrs := make(map[string]awsmsg.Attribute, len(in.MessageAttributes))
	for name, v := range in.MessageAttributes {
		attrs[name] = attribute(v)
	}
	return attrs
}

func attribute(v types.MessageAttributeValue) awsmsg.Attribute {
	if strings.HasPrefix(aws.ToString(v.DataType), awsmsg.TypeBinary) {
		return awsmsg.Attribute{Value: string(v.BinaryValue), Binary: true}
	}
	return awsmsg.Attribute{Value: aws.ToString(v.StringValue)}
}
