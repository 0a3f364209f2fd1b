package sqsbroker

import "github.com/postrider/postrider/internal/awsmsg"

// Limits of SQS.
const (
	// MaxMessageBytes is the most that one message may have: body and, of every
	// attribute, name, type and value. MaxBatchBytes is the same for all
	// messages of one request. Both are 1 MiB since August 2025:
	// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html
	// https://aws.amazon.com/blogs/compute/more-room-to-build-serverless-services-now-support-payloads-up-to-1-mb
	MaxMessageBytes = 1 << 20
	MaxBatchBytes   = 1 << 20

	// MaxBatch is the most messages of one request, MaxAttributes the most
	// attributes of one message.
	MaxBatch      = awsmsg.MaxBatch
	MaxAttributes = awsmsg.MaxAttributes
)

// Encoding says how a payload becomes a body.
type Encoding = awsmsg.Encoding

const (
	Raw    = awsmsg.Raw    // the payload is the body
	Base64 = awsmsg.Base64 // for payloads that are not text: standard base64
)
