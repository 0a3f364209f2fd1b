//go:build !race

package services

var buildFlags []string
