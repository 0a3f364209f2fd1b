//go:build race

package orders

var buildFlags = []string{"-race"}
