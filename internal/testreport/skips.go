package main

import (
	"fmt"
	"strings"
)

// allowed is one line of the list of skips: "PACKAGE TEST REASON". The package is
// relative to the module of the product; a TEST that ends in /... stands for all
// subtests of it. Empty lines and lines that start with # say nothing.
type allowed struct{ pkg, test, reason string }

func parseSkips(text string) ([]allowed, error) {
	var list []allowed
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return nil, fmt.Errorf("line %d: %q is not PACKAGE TEST REASON", i+1, line)
		}
		list = append(list, allowed{fields[0], fields[1], strings.Join(fields[2:], " ")})
	}
	return list, nil
}

// covers reports whether the line is about a test.
func (a allowed) covers(module string, t test) bool {
	if t.pkg != module+"/"+a.pkg && !(a.pkg == "." && t.pkg == module) {
		return false
	}
	if parent, ok := strings.CutSuffix(a.test, "/..."); ok {
		return strings.HasPrefix(t.name, parent+"/")
	}
	return t.name == a.test
}

// judge sorts skips into those that the list allows, each with its reason, and
// those that it does not.
func judge(module string, list []allowed, skipped []skip) (fine, wrong []string) {
	for _, s := range skipped {
		reason := ""
		for _, a := range list {
			if a.covers(module, s.test) {
				reason = a.reason
			}
		}
		where := strings.TrimPrefix(s.pkg, module+"/") + " " + s.name
		if reason != "" {
			fine = append(fine, where+": "+reason)
			continue
		}
		said := s.said
		if said == "" {
			said = "no reason given"
		}
		wrong = append(wrong, where+": "+said)
	}
	return fine, wrong
}
