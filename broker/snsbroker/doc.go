// Package snsbroker publishes messages to Amazon SNS.
//
// # How a message looks in SNS
//
// It looks as sqsbroker's package comment describes it for SQS: the payload, or
// its base64, is the message; type, id, topic, key, content type and headers are
// at most ten message attributes; what SNS does not take is refused or mended in
// the same way. So an SQS queue that is subscribed with raw message delivery
// holds what sqsbroker would have sent to it, and sqsbroker.Consumer hands out
// the same message byte for byte. Without raw message delivery SNS puts message
// and attributes into a JSON object; sqsbroker.ConsumerConfig.Envelope opens it.
// Filter policies of subscriptions see the attributes, such as EventType.
//
// # FIFO topics
//
// On a topic whose name ends in .fifo group and deduplication ids are those of
// sqsbroker: the key (or its hash, or the id where there is no key), and the
// message id.
//
// # Rights
//
// sns:Publish on the topic is all that is needed. A topic that is given by its
// name is taken to be in the account of the credentials, which STS tells
// without any right; for another account's topic give its ARN.
//
// # Endpoint and credentials
//
// The client is the caller's, with its credentials and retries. A topic's ARN
// names the region, whichever the client's is.
package snsbroker
