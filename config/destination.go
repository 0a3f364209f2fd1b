package config

import (
	"regexp"
	"strings"
)

// Destination is where a route sends to, such as sqs://orders.
type Destination struct {
	Scheme string // one of Schemes
	// Name is what follows "scheme://": for SQS the queue's name or ARN, with
	// {topic}, {key} or {type} where the message's own are to stand.
	Name string
}

func (d Destination) String() string { return d.Scheme + "://" + d.Name }

// Schemes are the destinations that this version knows.
var Schemes = []string{"sqs"}

const destinationForms = "sqs://QUEUE"

var (
	placeholder = regexp.MustCompile(`\{[^{}]*\}`)
	// SQS: up to 80 letters, digits, hyphens and underscores, .fifo included.
	// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html
	queueName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.fifo)?$`)
	queueARN  = regexp.MustCompile(`^arn:[a-z-]+:sqs:[a-z0-9-]+:[0-9]{12}:`)
)

// parseDestination says what is wrong and how to mend it, quoting nothing but
// the scheme and placeholders.
func parseDestination(text string) (d Destination, what, mend string) {
	scheme, name, found := strings.Cut(text, "://")
	switch {
	case !found && !strings.ContainsAny(text, ":/@ "):
		return d, "has no scheme", "write " + destinationForms
	case !found || !word(scheme):
		return d, "is not a destination", "write " + destinationForms
	case scheme == "sqs":
		what, mend = checkQueue(name)
		return Destination{Scheme: scheme, Name: name}, what, mend
	default:
		return d, "unknown scheme " + quote(scheme), didYouMean(scheme, Schemes) + " (as in " + destinationForms + ")"
	}
}

func checkQueue(name string) (what, mend string) {
	for _, p := range placeholder.FindAllString(name, -1) {
		if p != "{topic}" && p != "{key}" && p != "{type}" {
			return quote(p) + " does not name a part of the message", didYouMean(strings.Trim(p, "{}"), []string{"topic", "key", "type"})
		}
	}
	fixed := placeholder.ReplaceAllString(queueARN.ReplaceAllString(name, ""), "x")
	switch {
	case name == "":
		return "names no queue", "write " + destinationForms
	case !queueName.MatchString(fixed):
		return "does not name a queue", "SQS takes 1 to 80 letters, digits, hyphens and underscores, with .fifo at the end or not; for another account's queue write its ARN, as in sqs://arn:aws:sqs:REGION:ACCOUNT:NAME"
	case len(fixed) > 80:
		return "has more than 80 characters, which is the limit of SQS", "give the queue's name as it is in SQS"
	}
	return "", ""
}
