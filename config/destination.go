package config

import (
	"fmt"
	"regexp"
	"strings"
)

// Destination is where a route sends to, such as sqs://orders.
type Destination struct {
	Scheme string // one of Schemes
	// Name is what follows "scheme://": the name or ARN of the queue of SQS or
	// the topic of SNS, with {topic}, {key} or {type} where the message's own
	// are to stand.
	Name string
}

func (d Destination) String() string { return d.Scheme + "://" + d.Name }

// Schemes are the destinations that this version knows.
var Schemes = []string{"sqs", "sns"}

const destinationForms = "sqs://QUEUE or sns://TOPIC"

// resource is what a scheme's names stand for.
type resource struct {
	kind, service, form string
	most                int            // characters
	arn                 *regexp.Regexp // what may stand before the name
}

var (
	placeholder  = regexp.MustCompile(`\{[^{}]*\}`)
	resourceName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.fifo)?$`)

	resources = map[string]resource{
		// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html
		"sqs": {
			kind: "queue", service: "SQS", form: "sqs://QUEUE", most: 80,
			arn: regexp.MustCompile(`^arn:[a-z-]+:sqs:[a-z0-9-]+:[0-9]{12}:`),
		},
		// https://docs.aws.amazon.com/sns/latest/api/API_CreateTopic.html
		"sns": {
			kind: "topic", service: "SNS", form: "sns://TOPIC", most: 256,
			arn: regexp.MustCompile(`^arn:[a-z-]+:sns:[a-z0-9-]+:[0-9]{12}:`),
		},
	}
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
	}
	r, known := resources[scheme]
	if !known {
		return d, "unknown scheme " + quote(scheme), didYouMean(scheme, Schemes) + " (as in " + destinationForms + ")"
	}
	what, mend = r.check(name)
	return Destination{Scheme: scheme, Name: name}, what, mend
}

func (r resource) check(name string) (what, mend string) {
	for _, p := range placeholder.FindAllString(name, -1) {
		if p != "{topic}" && p != "{key}" && p != "{type}" {
			return quote(p) + " does not name a part of the message", didYouMean(strings.Trim(p, "{}"), []string{"topic", "key", "type"})
		}
	}
	fixed := placeholder.ReplaceAllString(r.arn.ReplaceAllString(name, ""), "x")
	switch {
	case name == "":
		return "names no " + r.kind, "write " + r.form
	case !resourceName.MatchString(fixed):
		return "does not name a " + r.kind, fmt.Sprintf(
			"%s takes 1 to %d letters, digits, hyphens and underscores, with .fifo at the end or not; for another account's %s write its ARN, as in %s://arn:aws:%[4]s:REGION:ACCOUNT:NAME",
			r.service, r.most, r.kind, strings.ToLower(r.service))
	case len(fixed) > r.most:
		return fmt.Sprintf("has more than %d characters, which is the limit of %s", r.most, r.service), fmt.Sprintf("give the %s's name as it is in %s", r.kind, r.service)
	}
	return "", ""
}
