package sqsbroker

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/uuid"

	"github.com/postrider/postrider/outbox"
)

// foreignIDs is the name space of the ids made from SQS message ids that are
// not UUIDs themselves. It must never change, or messages are handled twice.
var foreignIDs = uuid.MustParse("b7a4c2d1-5d0e-5f0a-9a54-6f1a5f3d3c11")

// decode makes the Message that was enqueued of what SQS handed out. queue is
// the topic of messages that name none.
//
// Messages that others put into the queue are welcome: without postrider-id
// the SQS message id, which all deliveries of a message share, is the id; the
// group id is the key; every attribute is a header, binary ones in base64
// unless they are UTF-8.
func decode(in *types.Message, queue string) (outbox.Message, error) {
	attrs := in.MessageAttributes
	m := outbox.Message{
		Topic:       text(attrs[attrTopic]),
		Key:         text(attrs[attrKey]),
		Type:        text(attrs[attrType]),
		ContentType: text(attrs[attrContentType]),
	}
	var errs []error
	var err error
	if id, ok := attrs[attrID]; ok {
		if m.ID, err = uuid.Parse(text(id)); err != nil {
			errs = append(errs, fmt.Errorf("attribute %s: %w", attrID, err))
		}
	} else {
		m.ID = foreignID(aws.ToString(in.MessageId))
		if m.Key == "" {
			m.Key = in.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
		}
	}
	if m.Topic == "" {
		m.Topic = queue
	}
	if !sameBody(in.Body, in.MD5OfBody) {
		errs = append(errs, errors.New("body: it is not the one that SQS made the checksum of"))
	}
	if m.Payload, err = decodeBody(aws.ToString(in.Body), text(attrs[attrEncoding])); err != nil {
		errs = append(errs, err)
	}
	if m.Headers, err = decodeHeaders(attrs); err != nil {
		errs = append(errs, err)
	}
	return m, errors.Join(errs...)
}

func foreignID(sqsID string) uuid.UUID {
	if id, err := uuid.Parse(sqsID); err == nil {
		return id
	}
	return uuid.NewSHA1(foreignIDs, []byte(sqsID))
}

func decodeBody(body, encoding string) ([]byte, error) {
	switch encoding {
	case "", string(Raw):
		return []byte(body), nil
	case encodingEmpty:
		return []byte{}, nil
	case string(Base64):
		payload, err := base64.StdEncoding.DecodeString(body)
		if err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		return payload, nil
	default:
		return nil, fmt.Errorf("attribute %s: %q is not known", attrEncoding, encoding)
	}
}

func decodeHeaders(attrs map[string]types.MessageAttributeValue) (map[string]string, error) {
	if object, ok := attrs[attrHeaders]; ok {
		var headers map[string]string
		if err := json.Unmarshal([]byte(text(object)), &headers); err != nil {
			return nil, fmt.Errorf("attribute %s: %w", attrHeaders, err)
		}
		return headers, nil
	}
	var headers map[string]string
	for name, v := range attrs {
		if reserved(name) {
			continue
		}
		if headers == nil {
			headers = make(map[string]string, len(attrs))
		}
		headers[name] = headerText(v)
	}
	return headers, nil
}

// text is the value of an attribute, whichever type holds it.
func text(v types.MessageAttributeValue) string {
	if strings.HasPrefix(aws.ToString(v.DataType), typeBinary) {
		return string(v.BinaryValue)
	}
	return aws.ToString(v.StringValue)
}

func headerText(v types.MessageAttributeValue) string {
	s := text(v)
	if !utf8.ValidString(s) {
		return base64.StdEncoding.EncodeToString([]byte(s))
	}
	return s
}
