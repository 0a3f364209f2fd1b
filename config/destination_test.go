package config

import (
	"strings"
	"testing"
)

func TestDestinations(t *testing.T) {
	for _, scheme := range Schemes {
		for name, good := range map[string]bool{
			"orders": true, "orders.fifo": true, "{topic}": true, "eu-{topic}-{type}-{key}.fifo": true,
			"arn:aws:SERVICE:eu-west-1:123456789012:orders": true, "arn:aws-cn:SERVICE:cn-north-1:123456789012:{topic}.fifo": true,
			strings.Repeat("x", 80): true, strings.Repeat("x", 75) + ".fifo": true,
			strings.Repeat("x", 81): scheme == "sns", strings.Repeat("x", 256): scheme == "sns", strings.Repeat("x", 257): false,
			"": false, "a b": false, "a/b": false, "{table}": false, "orders.fifo.x": false, "arn:aws:s3:::orders": false,
			"arn:aws:SERVICE:eu-west-1:123456789012:": false, "https://example.com/orders": false,
		} {
			text := scheme + "://" + strings.ReplaceAll(name, "SERVICE", scheme)
			d, what, mend := parseDestination(text)
			if (what == "") != good || (what == "") != (mend == "") {
				t.Errorf("%s: %q, %q", text, what, mend)
			}
			if good && d.String() != text {
				t.Errorf("%s became %s", text, d)
			}
		}
	}
}
