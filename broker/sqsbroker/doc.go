// Package sqsbroker publishes messages to Amazon SQS and consumes them from it.
//
// # How a message looks in SQS
//
// The body is the payload itself (Encoding Raw) or its base64 (Base64). What
// else the message has travels in message attributes:
//
//	EventType           Message.Type
//	postrider-id        Message.ID
//	postrider-topic     Message.Topic
//	postrider-key       Message.Key
//	content-type        Message.ContentType
//	postrider-encoding  how the body is to be read, if not raw: base64 or empty
//	traceparent         the header of that name
//	(header names)      the other headers, one attribute each
//	postrider-headers   all headers as one JSON object, if they do not fit
//
// Empty fields have no attribute, because SQS refuses empty values. SQS takes
// ten attributes: headers become attributes of their own if there is room for
// all of them, none has an empty value or a name or character that SQS
// refuses, and none is called as one of the names above. Otherwise all of them
// go into postrider-headers (traceparent is then in both places), in which
// refused characters are escaped; so headers arrive exactly as they were
// written in either form. NotBefore, Expires and CreatedAt are the outbox's own
// and do not travel.
//
// # What SQS does not take
//
// SQS takes no empty body, and of the control characters only tab, line feed
// and carriage return; neither U+FFFE, U+FFFF nor bytes that are not UTF-8.
// With Raw such a message fails as permanent before anything is sent, with
// an error that names the place. With Base64 every payload can be sent; type,
// topic, key or content type with such characters become Binary attributes,
// and an empty payload becomes the body "-" with postrider-encoding "empty".
// The Consumer reads all of these by itself.
//
// # FIFO queues
//
// On a queue whose name ends in .fifo the group id is the key where SQS takes
// it as one (1 to 128 ASCII letters, digits and punctuation), otherwise the
// hexadecimal SHA-256 of the key; without a key it is the message id, so that
// nothing waits for anything. The deduplication id is the message id; of one
// that an operator sends again it has the number of that replay, too, since AWS
// would drop it otherwise.
//
// # Queues subscribed to an SNS topic
//
// With raw message delivery a message that snsbroker published comes out as
// one that was sent to the queue itself. Without it set ConsumerConfig.Envelope.
//
// # Endpoint and credentials
//
// The client is the caller's, with its credentials, region and retries (the
// SDK's default: 3 attempts, all within the context given). The client's
// endpoint always wins: the SDK sends a queue URL as a parameter and never
// connects to the host in it, so a URL that an emulator calls
// http://localhost:4566/… works through any endpoint.
package sqsbroker
