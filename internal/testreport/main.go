// Command testreport reads `go test -json` and prints what a person wants to see
// of it: a line for each package, the output of what failed, every skipped test
// with its reason, and last a line "N passed, N failed, N skipped".
//
//	go test -json ./... | testreport -skips test/skips.txt
//
// It exits 1 when a test failed, a package did not build or run, no test ran at
// all, or a test was skipped that the list of skips does not allow.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	module := flag.String("module", "github.com/postrider/postrider", "module path that the list of skips leaves out")
	skips := flag.String("skips", "", "file that lists the tests which may be skipped")
	verbose := flag.Bool("v", false, "also print what passing tests printed")
	var before []string
	flag.Func("failed", "something that failed before the tests and counts as a failure; may be repeated", func(what string) error {
		before = append(before, what)
		return nil
	})
	flag.Parse()
	r := newReport(os.Stdout)
	r.verbose, r.unfit = *verbose, before
	code, err := r.run(os.Stdin, *module, *skips)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
	}
	os.Exit(code)
}

func (r *report) run(in io.Reader, module, skipsPath string) (code int, err error) {
	out := r.out
	var list []allowed
	if skipsPath != "" {
		text, err := os.ReadFile(skipsPath)
		if err != nil {
			return 1, err
		}
		if list, err = parseSkips(string(text)); err != nil {
			return 1, fmt.Errorf("%s: %w", skipsPath, err)
		}
	}
	if err := r.read(in); err != nil {
		return 1, err
	}

	fine, wrong := judge(module, list, r.skipped)
	for _, line := range fine {
		fmt.Fprintf(out, "skipped as listed: %s\n", line)
	}
	for _, line := range wrong {
		fmt.Fprintf(out, "SKIPPED WITHOUT BEING LISTED: %s\n", line)
	}
	for _, t := range r.failed {
		fmt.Fprintf(out, "FAILED: %s %s\n", t.pkg, t.name)
	}
	for _, line := range r.unfit {
		fmt.Fprintf(out, "FAILED: %s\n", line)
	}
	if len(r.passed) == 0 {
		fmt.Fprintln(out, "FAILED: no test passed")
	}
	// What failed outside a test counts as well, or the line would read as if
	// nothing had.
	failed := len(r.failed) + len(r.unfit)
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", len(r.passed), failed, len(r.skipped))
	if failed > 0 || len(wrong) > 0 || len(r.passed) == 0 {
		return 1, nil
	}
	return 0, nil
}
