//go:build race

package e2e

// The programs are built as the test is.
var buildFlags = []string{"-race"}
