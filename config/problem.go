package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with the settings.
type Problem struct {
	// File, Line and Column say where, both counted from 1; empty and 0 if it
	// is not about a file, or not about one place of it.
	File         string
	Line, Column int
	// Source is the flag or variable, such as "--lease" or "POSTRIDER_LEASE",
	// if the value came from there.
	Source string
	// Setting is its path, such as "routes[1].retry.max"; may be empty.
	Setting string
	// What is wrong, and how to mend it.
	What, Mend string
}

// String is one line: where, which setting, what, how to mend it.
func (p Problem) String() string {
	var b strings.Builder
	switch {
	case p.Source != "":
		b.WriteString(p.Source + ": ")
	case p.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Column)
	case p.File != "":
		b.WriteString(p.File + ": ")
	}
	if p.Setting != "" {
		b.WriteString(p.Setting + ": ")
	}
	b.WriteString(p.What)
	if p.Mend != "" {
		b.WriteString("; " + p.Mend)
	}
	return b.String()
}

// Error is everything that is wrong with the settings.
type Error struct {
	// Problems in the order of the file, then those of variables and flags.
	// Never empty.
	Problems []Problem
}

func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	if len(lines) == 1 {
		return lines[0]
	}
	return fmt.Sprintf("%d problems with the settings:\n  %s", len(lines), strings.Join(lines, "\n  "))
}

// problems collects.
type problems []Problem

func (ps *problems) add(at origin, setting, what, mend string) {
	*ps = append(*ps, Problem{
		File: at.file, Line: at.line, Column: at.column, Source: at.source,
		Setting: setting, What: what, Mend: mend,
	})
}

func (ps problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	slices.SortStableFunc(ps, func(a, b Problem) int {
		if byKind := cmp.Compare(rank(a), rank(b)); byKind != 0 {
			return byKind
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Error{Problems: ps}
}

func rank(p Problem) int {
	switch {
	case p.Source != "":
		return 1
	case p.File != "":
		return 0
	default:
		return 2
	}
}

// origin says where a value was written.
type origin struct {
	file         string
	line, column int
	source       string
}

func (o origin) String() string {
	if o.source != "" {
		return o.source
	}
	return fmt.Sprintf("%s:%d:%d", o.file, o.line, o.column)
}

var secretPair = regexp.MustCompile(`(?i)((?:pass|pwd|secret|token)[a-z_-]*\s*[=:]\s*)('[^']*'|[^\s&;,]+)`)

var userName = regexp.MustCompile(`^[A-Za-z0-9_.%-]{1,63}$`)

// Redact returns s with what may be credentials replaced: the part of a URL
// before its host, unless it is a user's name alone, and values of words such
// as password. It errs on the side of hiding too much: a password that was not
// encoded may hold any character, so everything up to the last @ goes. Use it
// on texts that were not written by this program.
func Redact(s string) string {
	scheme, rest, found := strings.Cut(s, "://")
	if at := strings.LastIndex(rest, "@"); found && at >= 0 {
		if user := rest[:at]; !userName.MatchString(user) {
			rest = redacted + rest[at:]
		}
		s = scheme + "://" + rest
	}
	return secretPair.ReplaceAllString(s, "${1}"+redacted)
}

// quote shows a value that the operator wrote.
func quote(s string) string {
	const most = 80
	// A URL that lacks its slashes may still hold a password.
	if colon, at := strings.Index(s, ":"), strings.LastIndex(s, "@"); colon >= 0 && colon < at {
		s = s[:colon+1] + redacted + s[at:]
	}
	s = Redact(s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

// closest returns the name that was probably meant, or "".
func closest(name string, names []string) string {
	fold := func(s string) string {
		return strings.NewReplacer("-", "", "_", "", ".", "", " ", "").Replace(strings.ToLower(s))
	}
	best, bestAt := "", max(1, len(name)/3)+1
	for _, n := range names {
		if d := distance(fold(name), fold(n)); d < bestAt {
			best, bestAt = n, d
		}
	}
	return best
}

func didYouMean(name string, names []string) string {
	if n := closest(name, names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return "known here: " + strings.Join(names, ", ")
}

// distance is the number of edits (insert, delete, replace, swap neighbours)
// between two short words.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
