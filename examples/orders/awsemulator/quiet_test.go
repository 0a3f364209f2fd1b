package awsemulator

import "testing"

func TestQuietMessages(t *testing.T) {
	const id = `"MessageId":{"DataType":"String","StringValue":"22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324"}`
	for noisy, want := range map[string]string{
		`{}`:                                    `{}`,
		`{"MessageId":"m"}`:                     `{"MessageId":"m"}`,
		`{` + id + `}`:                          `{}`,
		`{"a":1,` + id + `}`:                    `{"a":1}`,
		`{` + id + `,"b":2}`:                    `{"b":2}`,
		`{"a":1,` + id + `,"b":2},{` + id + `}`: `{"a":1,"b":2},{}`,
		`{"MessageId":{"StringValue":"mine"},` + id + `}`: `{"MessageId":{"StringValue":"mine"}}`,
		`{"Body":"{\"MessageId\":{"}`:                     `{"Body":"{\"MessageId\":{"}`,
		`{"MessageId":{`:                                  `{"MessageId":{`,
	} {
		if got := string(quietMessages([]byte(noisy))); got != want {
			t.Errorf("%s became %s, want %s", noisy, got, want)
		}
	}
}
