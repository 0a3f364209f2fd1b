package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of `go test -json` (go doc test2json, go doc buildjson).
type event struct {
	Action     string
	Package    string
	ImportPath string // of a build-output or build-fail
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// test names one test, or a package when its name is empty.
type test struct{ pkg, name string }

// report gathers what happened.
type report struct {
	out     io.Writer
	verbose bool
	output  map[test][]string // what a test printed; dropped once it has passed
	open    map[test]bool     // started and not ended
	unfit   []string          // what failed besides tests: packages that did not build or run

	passed, failed []test
	skipped        []skip
}

// skip is a test that was skipped, with the reason that it gave.
type skip struct {
	test
	said string
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[test][]string{}, open: map[test]bool{}}
}

// read takes in a whole run and prints a line for each package as it ends, and
// for each failed test what it printed.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if line[0] == '{' && json.Unmarshal(line, &e) == nil && e.Action != "" {
				r.add(e)
			} else {
				fmt.Fprintf(r.out, "%s", line) // what the go command itself says
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	// What began and never ended was cut off, by a crash as a rule.
	for t := range r.open {
		if t.name != "" {
			r.failed = append(r.failed, t)
			fmt.Fprintf(r.out, "--- CUT OFF: %s %s\n", t.pkg, t.name)
		}
	}
	return nil
}

func (r *report) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "start", "run":
		r.open[t] = true
	case "output":
		r.output[t] = append(r.output[t], e.Output)
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "build-fail":
		r.unfit = append(r.unfit, e.ImportPath+" does not build")
	case "pass", "fail", "skip":
		delete(r.open, t)
		if t.name == "" {
			r.endPackage(t, e)
		} else {
			r.endTest(t, e)
		}
	}
}

func (r *report) endTest(t test, e event) {
	switch e.Action {
	case "pass":
		r.passed = append(r.passed, t)
		if r.verbose {
			r.show("PASS", t, e)
		}
	case "fail":
		r.failed = append(r.failed, t)
		r.show("FAIL", t, e)
	case "skip":
		r.skipped = append(r.skipped, skip{t, reasonIn(r.output[t])})
	}
	delete(r.output, t)
}

// show prints a test with what it printed, less the lines of the test runner.
func (r *report) show(word string, t test, e event) {
	fmt.Fprintf(r.out, "--- %s: %s %s (%.2fs)\n", word, t.pkg, t.name, e.Elapsed)
	for _, line := range r.output[t] {
		if text := strings.TrimSpace(line); !strings.HasPrefix(text, "=== ") && !strings.HasPrefix(text, "--- "+word+": "+t.name+" ") {
			fmt.Fprint(r.out, line)
		}
	}
}

func (r *report) endPackage(t test, e event) {
	switch {
	case e.Action == "skip":
		fmt.Fprintf(r.out, "-    %s (no tests)\n", t.pkg)
	case e.Action == "pass":
		fmt.Fprintf(r.out, "ok   %s %.1fs\n", t.pkg, e.Elapsed)
	default:
		ofTests := func(x test) bool { return x.pkg == t.pkg && x.name != "" }
		if !slices.ContainsFunc(r.failed, ofTests) {
			r.unfit = append(r.unfit, t.pkg+" failed outside its tests")
		}
		// A panic, a data race or a timeout is the package's output, not a test's.
		fmt.Fprintf(r.out, "FAIL %s %.1fs\n%s", t.pkg, e.Elapsed, strings.Join(r.output[t], ""))
		for open := range r.open {
			if ofTests(open) {
				fmt.Fprintf(r.out, "--- while %s ran:\n%s", open.name, strings.Join(r.output[open], ""))
			}
		}
	}
	delete(r.output, t)
}

// reasonIn finds what a skipped test said: "    file_test.go:12: reason".
func reasonIn(output []string) string {
	var said []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if _, after, ok := strings.Cut(line, ".go:"); ok {
			if _, text, ok := strings.Cut(after, ": "); ok {
				line = text
			}
		}
		said = append(said, line)
	}
	return strings.Join(said, " ")
}
