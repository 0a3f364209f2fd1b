package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is a scalar as the operator wrote it, from any of the three places.
type value struct {
	at      origin
	setting string
	text    string // what to parse
	shown   string // what messages show: never what a variable held
	// tag is "!!str", "!!int" and so on where YAML decided; empty where every
	// value is text (flags, variables, and what ${…} brought in).
	tag string
	// broken: a problem with it was reported already.
	broken bool
}

// reader turns values into settings and collects what is wrong with them. Its
// methods return the fallback for what they had to report.
type reader struct {
	problems problems
}

func (r *reader) bad(v value, what, mend string) {
	r.problems.add(v.at, v.setting, what, mend)
}

var tagWords = map[string]string{
	"!!str": "text", "!!int": "a number", "!!float": "a number", "!!bool": "true or false",
	"!!null": "nothing", "!!timestamp": "a date", "!!seq": "a list", "!!map": "a mapping",
}

// usable reports whether v may be parsed: it is there and has one of the tags.
func (r *reader) usable(v value, want, example string, tags ...string) bool {
	switch {
	case v.broken:
		return false
	case v.tag == "!!null":
		r.bad(v, "has no value", "write "+example+", or remove it for the default")
		return false
	case v.tag != "" && !slices.Contains(tags, v.tag):
		word := tagWords[v.tag]
		if word == "" {
			r.bad(v, "has a YAML tag of its own", "write "+example)
			return false
		}
		mend := "write " + example
		if slices.Contains(tags, "!!str") && (v.tag == "!!int" || v.tag == "!!float" || v.tag == "!!bool" || v.tag == "!!timestamp") {
			mend = "put it in quotes if text is meant: " + quote(v.shown)
		} else if _, err := strconv.ParseFloat(v.text, 64); v.tag == "!!str" && err == nil {
			mend = "remove the quotes"
		}
		r.bad(v, fmt.Sprintf("is %s where %s belongs", word, want), mend)
		return false
	}
	return true
}

func (r *reader) str(v value, fallback, example string) string {
	if !r.usable(v, "text", example, "!!str") {
		return fallback
	}
	if strings.TrimSpace(v.text) == "" {
		r.bad(v, "is empty", "write "+example)
		return fallback
	}
	return v.text
}

func (r *reader) choice(v value, fallback string, options ...string) string {
	if !r.usable(v, "text", strings.Join(options, " or "), "!!str", "!!bool", "!!int", "!!float", "!!timestamp") {
		return fallback
	}
	if slices.Contains(options, v.text) {
		return v.text
	}
	mend := "use " + strings.Join(options, " or ")
	if n := closest(v.text, options); n != "" {
		mend = fmt.Sprintf("did you mean %s? It is one of %s", n, strings.Join(options, ", "))
	}
	r.bad(v, quote(v.shown)+" is not one of its values", mend)
	return fallback
}

func (r *reader) duration(v value, fallback, low, high time.Duration) time.Duration {
	if !r.usable(v, "a duration", fallback.String(), "!!str", "!!int", "!!float") {
		return fallback
	}
	d, err := ParseDuration(v.text)
	if err != nil {
		r.unreadable(v, err)
		return fallback
	}
	if d < low || d > high {
		r.bad(v, fmt.Sprintf("%s is out of range", quote(v.shown)), fmt.Sprintf("use %s to %s", short(low), short(high)))
		return fallback
	}
	return d
}

func (r *reader) bytes(v value, fallback, low, high ByteSize) ByteSize {
	if !r.usable(v, "a size", fallback.String(), "!!str", "!!int", "!!float") {
		return fallback
	}
	n, err := ParseByteSize(v.text)
	if err != nil {
		r.unreadable(v, err)
		return fallback
	}
	if n < low || n > high {
		r.bad(v, fmt.Sprintf("%s is out of range", quote(v.shown)), fmt.Sprintf("use %s to %s", low, high))
		return fallback
	}
	return n
}

func (r *reader) int(v value, fallback, low, high int) int {
	if !r.usable(v, "a whole number", strconv.Itoa(fallback), "!!int", "!!float") {
		return fallback
	}
	n, err := strconv.Atoi(v.text)
	switch {
	case err != nil:
		r.bad(v, quote(v.shown)+" is not a whole number", "write digits only, such as "+strconv.Itoa(fallback))
		return fallback
	case n < low || n > high:
		r.bad(v, quote(v.shown)+" is out of range", fmt.Sprintf("use %d to %d", low, high))
		return fallback
	}
	return n
}

func (r *reader) float(v value, fallback, low, high float64) float64 {
	example := strconv.FormatFloat(fallback, 'g', -1, 64)
	if !r.usable(v, "a number", example, "!!int", "!!float") {
		return fallback
	}
	n, err := strconv.ParseFloat(v.text, 64)
	switch {
	case err != nil || math.IsNaN(n) || math.IsInf(n, 0) || strings.ContainsAny(v.text, "xX_pP"):
		r.bad(v, quote(v.shown)+" is not a number", "write it with digits and a point, such as "+example)
		return fallback
	case n < low || n > high:
		r.bad(v, quote(v.shown)+" is out of range", fmt.Sprintf("use %v to %v", low, high))
		return fallback
	}
	return n
}

// unreadable reports err, whose text is "what: how to mend it" about v.
func (r *reader) unreadable(v value, err error) {
	what, mend, _ := strings.Cut(err.Error(), ": ")
	if v.shown != v.text {
		mend = "" // it may quote the value
	}
	r.bad(v, quote(v.shown)+" "+what, mend)
}

// short prints 1m0s as 1m and 24h0m0s as 24h.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
