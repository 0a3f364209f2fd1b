package awsmsg

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/postrider/postrider/outbox"
)

// Decode makes the Message of which Encode made the body and the attributes.
// Its ID is zero if no attribute has one: then the message is another
// program's, every attribute that is not one of ours is a header, and binary
// ones are in base64 unless they are UTF-8.
func Decode(body string, attrs map[string]Attribute) (outbox.Message, error) {
	m := outbox.Message{
		Topic:       attrs[AttrTopic].Value,
		Key:         attrs[AttrKey].Value,
		Type:        attrs[AttrType].Value,
		ContentType: attrs[AttrContentType].Value,
	}
	var idErr, bodyErr, headersErr error
	if id, ok := attrs[AttrID]; ok {
		if m.ID, idErr = uuid.Parse(id.Value); idErr != nil {
			idErr = fmt.Errorf("attribute %s: %w", AttrID, idErr)
		}
	}
	m.Payload, bodyErr = decodeBody(body, attrs[AttrEncoding].Value)
	m.Headers, headersErr = decodeHeaders(attrs)
	return m, errors.Join(idErr, bodyErr, headersErr)
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
		return nil, fmt.Errorf("attribute %s: %q is not known", AttrEncoding, encoding)
	}
}

func decodeHeaders(attrs map[string]Attribute) (map[string]string, error) {
	if object, ok := attrs[AttrHeaders]; ok {
		var headers map[string]string
		if err := json.Unmarshal([]byte(object.Value), &headers); err != nil {
			return nil, fmt.Errorf("attribute %s: %w", AttrHeaders, err)
		}
		return headers, nil
	}
	var headers map[string]string
	for name, a := range attrs {
		if reserved(name) {
			continue
		}
		if headers == nil {
			headers = make(map[string]string, len(attrs))
		}
		headers[name] = a.Value
		if !utf8.ValidString(a.Value) {
			headers[name] = base64.StdEncoding.EncodeToString([]byte(a.Value))
		}
	}
	return headers, nil
}
