package headers_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/headers"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]map[string]string{
		`{}`:                     nil,
		` { } `:                  {},
		`{"a":"b","c":""}`:       {"a": "b", "c": ""},
		`{"a":"\u0000\u00fc\""}`: {"a": "\x00ü\""},
		`{"a":1}`:                {"a": "1"},
		`{"a":1e999,"b":"x"}`:    {"a": "1e999", "b": "x"},
		`{"a":null,"b":"x"}`:     {"a": "null", "b": "x"},
		`{"a":{"b":[1, 2]}}`:     {"a": `{"b":[1, 2]}`},
		`{"a":true,"a":"last"}`:  {"a": "last"},
	} {
		got, err := headers.Parse(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", text, err, diff)
		}
	}
	for _, text := range []string{"", "{", "null", `"a"`, "[]", "1", `{"a":1}x`, "{'a':1}"} {
		if got, err := headers.Parse(text); err == nil {
			t.Errorf("%q was taken: %v", text, got)
		}
	}
}
