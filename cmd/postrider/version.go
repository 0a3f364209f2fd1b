package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set when a release is built: -ldflags "-X main.version=v1.2.3 -X main.commit=… -X main.date=…".
var version, commit, date string

type versionCommand struct{}

func (versionCommand) Run(p *process) error {
	return printLines(p.Stdout, "postrider "+describe())
}

// describe is the version with what is known about the build.
func describe() string {
	v, c, d := build()
	text := v
	if c != "" {
		text += " commit " + c
	}
	if d != "" {
		text += " of " + d
	}
	return fmt.Sprintf("%s (%s %s/%s)", text, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// build takes the linker's values, else what the go command recorded.
func build() (v, c, d string) {
	v, c, d = version, commit, date
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(v, "devel"), c, d
	}
	modified := false
	var revision, time string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.time":
			time = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if modified {
		revision += "+changes"
	}
	main := info.Main.Version
	if main == "(devel)" {
		main = ""
	}
	return cmp.Or(v, main, "devel"), cmp.Or(c, revision), cmp.Or(d, time)
}
