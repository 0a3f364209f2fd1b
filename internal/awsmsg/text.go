package awsmsg

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/outbox"
)

const (
	maxGroupID       = 128
	maxAttributeName = 256
)

// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html
// https://docs.aws.amazon.com/sns/latest/dg/sns-message-attributes.html
var attributeName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

func validAttributeName(name string) bool {
	lower := strings.ToLower(name)
	return len(name) <= maxAttributeName && attributeName.MatchString(name) &&
		!strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.")
}

// remedy is what an operator can do about text that AWS refuses.
const remedy = `"encoding: base64" on the route mends it`

// check returns an error that names the first character that AWS refuses.
func (e *encoder) check(field, s string) error {
	r := firstRefused(s)
	if r == nil {
		return nil
	}
	return fmt.Errorf("%s has %s at byte %d, which %s refuses: %s", field, r.what, r.at, e.service, remedy)
}

type refusedText struct {
	what string
	at   int
}

// firstRefused finds what SQS and SNS refuse:
// all but #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html
// https://aws.amazon.com/sns/faqs/
func firstRefused(s string) *refusedText {
	for i, r := range s {
		if r >= ' ' && r != utf8.RuneError && r < 0xFFFE || r == '\n' || r == '\r' || r == '\t' || r > 0xFFFF {
			continue
		}
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size > 1 {
				continue // a real U+FFFD
			}
			return &refusedText{fmt.Sprintf("byte 0x%02X, which is not UTF-8,", s[i]), i}
		}
		return &refusedText{fmt.Sprintf("the character U+%04X", r), i}
	}
	return nil
}

// GroupID is the message group of a key on a FIFO queue or topic: the key
// itself where AWS takes it, otherwise its hash; without a key it is the
// message's own id.
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
// https://docs.aws.amazon.com/sns/latest/api/API_PublishBatchRequestEntry.html
func GroupID(m *outbox.Message) string {
	if m.Key == "" {
		return m.ID.String()
	}
	fits := len(m.Key) <= maxGroupID && !strings.ContainsFunc(m.Key, func(r rune) bool { return r <= ' ' || r > '~' })
	if fits {
		return m.Key
	}
	sum := sha256.Sum256([]byte(m.Key))
	return hex.EncodeToString(sum[:])
}

// DeduplicationID is what a FIFO queue or topic, which drops what it had within
// five minutes, knows the message by: its id, and the number of the replay if it
// is one.
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/using-messagededuplicationid-property.html
func DeduplicationID(m *outbox.Message) string {
	if m.Replay == 0 {
		return m.ID.String()
	}
	return m.ID.String() + "-" + strconv.FormatInt(m.Replay, 10)
}
