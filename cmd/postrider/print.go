package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// safe is a text that a database holds, for a terminal: whatever is not printed
// as itself (control characters, which can repaint the screen, and marks that
// turn the direction of writing) is written as an escape, such as \x1b.
func safe(text string) string { return escape(text, "") }

// escape is safe, but for the characters in keep.
func escape(text, keep string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(r) || strings.ContainsRune(keep, r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		i += size
	}
	return b.String()
}

// brief is at most so many characters of a text, safely.
func brief(text string, most int) string {
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most-1]) + "…"
	}
	return safe(text)
}

// ago says how long before now something was; a dash if it never was.
func ago(at, now time.Time, short func(time.Duration) string) string {
	if at.IsZero() {
		return "-"
	}
	return short(max(now.Sub(at), 0))
}

// stamp is a time for people and programs alike.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// table prints columns that line up. Cells must be safe.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer) *table { return &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

func (t *table) row(cells ...string) {
	for i, c := range cells {
		if c == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t")) // Flush tells of errors
}

func (t *table) flush() error { return t.w.Flush() }

func printJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, safeJSON(text)+"\n")
	return err
}

// safeJSON writes characters that turn the direction of writing, and the like, as
// escapes, which mean the same. JSON has none of them outside of its strings.
func safeJSON(text []byte) string {
	var b strings.Builder
	for _, r := range string(text) {
		switch {
		case r < utf8.RuneSelf || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}
	}
	return b.String()
}
