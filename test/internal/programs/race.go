//go:build race

package programs

// The programs are built as the test is.
var buildFlags = []string{"-race"}
