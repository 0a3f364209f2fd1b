//go:build race

package services

// The programs are built as the test is.
var buildFlags = []string{"-race"}
