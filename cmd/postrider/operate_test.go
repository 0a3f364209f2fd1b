package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"
)

func TestSafe(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"orders 4711 ü 🐎":          "orders 4711 ü 🐎",
		"\x1b[2J\a\x7f":            `\x1b[2J\a\x7f`,
		"a\nb\r\t\x00":             `a\nb\r\t\x00`,
		"abc\u202edef\u2066\ufeff": `abc\u202edef\u2066\ufeff`,
		"\xff\xfeok":               `\xff\xfeok`,
		"\u009b31m":                `\u009b31m`, // one character that begins a control sequence
		"\ufffd":                   "\ufffd",
	} {
		if got := safe(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
	if got := escape("a\nb\tc\x1b", "\n\t"); got != "a\nb\tc\\x1b" {
		t.Errorf("a payload is shown as %q", got)
	}
	if got := brief(strings.Repeat("ü\x1b", 50), 10); got != `ü\x1bü\x1bü\x1bü\x1bü…` {
		t.Errorf("cut to %q", got)
	}
	if got := safeJSON([]byte(`{"a":"` + "\u202e😀\U000e0001" + `"}`)); got != `{"a":"\u202e😀\udb40\udc01"}` {
		t.Errorf("JSON is shown as %s", got)
	}
}

func FuzzSafe(f *testing.F) {
	f.Add("\x1b[0m\u202e\xff")
	f.Fuzz(func(t *testing.T, text string) {
		if got := safe(text); strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is shown as %q", text, got)
		}
	})
}

func TestTimesOfFilters(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                          {},
		"90m":                       now.Add(-90 * time.Minute),
		"2d":                        now.AddDate(0, 0, -2),
		"2d6h":                      now.AddDate(0, 0, -2).Add(-6 * time.Hour),
		"2026-11-29":                time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC),
		"2026-11-29T10:30":          time.Date(2026, 11, 29, 10, 30, 0, 0, time.UTC),
		"2026-11-29T10:30:00+02:00": time.Date(2026, 11, 29, 8, 30, 0, 0, time.UTC),
	} {
		if got, err := parseTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"yesterday", "-1h", "2", "d", "2dx", "1.5d", "9999999d", "2026-13-01", "2026-11-29T10", "99999999999h"} {
		if got, err := parseTime(text, now); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

// Only a person's yes is a yes.
func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, " yes ": true, "n\n": false, "\n": false, "": false, "yesterday\n": false} {
		var out bytes.Buffer
		o := &office{p: &process{Stdin: strings.NewReader(answer), Stderr: &out, Terminal: true}}
		if err := o.confirm("retry 3 messages", ""); (err == nil) != want || !strings.Contains(out.String(), "retry 3 messages? [y/N]") {
			t.Errorf("%q: %v, asked %q", answer, err, out.String())
		}
		o.p.Terminal = false
		err := o.confirm("retry 3 messages", "")
		if f, ok := errors.AsType[*failure](err); !ok || f.code != exitUsage {
			t.Errorf("with nobody there: %v", err)
		}
	}
}

func TestWhereAListGoesOn(t *testing.T) {
	for _, text := range []string{"orders/2/4711", "a/b/0/1"} {
		r, err := parseAfter(text)
		if err != nil || formatAfter(r) != text {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
	for _, text := range []string{"orders", "orders/1", "2/4711", "orders/x/1", "orders/1/-1", "//"} {
		if r, err := parseAfter(text); err == nil {
			t.Errorf("%s is taken for %+v", text, r)
		}
	}
}
