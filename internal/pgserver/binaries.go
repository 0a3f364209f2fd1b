//go:build linux || darwin

package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// errNoBinaries is in the error of a start for which no server programs were found.
var errNoBinaries = errors.New("no PostgreSQL server programs (initdb, postgres) found")

// searched are the places where systems put server programs, by major version.
var searched = []string{
	"/usr/lib/postgresql/*/bin",            // Debian, Ubuntu
	"/usr/pgsql-*/bin",                     // PostgreSQL's own packages for Red Hat's systems
	"/opt/homebrew/opt/postgresql@*/bin",   // macOS
	"/usr/local/opt/postgresql@*/bin",      // macOS on Intel
	"/usr/libexec/postgresql*",             // Alpine
	"/opt/local/lib/postgresql*/bin",       // MacPorts
	"/usr/lib/postgresql", "/usr/libexec/", // without a version in the path
}

// binaries are the server programs of one version.
type binaries struct {
	dir     string
	version string // what `postgres --version` says
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// major is the version as PG_VERSION has it in a cluster: "15".
func (b binaries) major() string {
	fields := strings.Fields(b.version) // postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)
	if len(fields) < 3 {
		return ""
	}
	number := fields[2] // also 19devel, 19beta1
	if end := strings.IndexFunc(number, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		number = number[:end]
	}
	return number
}

// findBinaries returns the newest server programs of the machine, or those of one
// major version. It installs Debian's package if there are none and it may, and
// fetches version 18 if that is asked for.
func findBinaries(ctx context.Context, major string, user account) (binaries, error) {
	found := lookForBinaries()
	if len(found) == 0 && major != Version18 {
		if err := install(ctx); err != nil {
			return binaries{}, fmt.Errorf("%w: %w", errNoBinaries, err)
		}
		found = lookForBinaries()
	}
	var have []string
	for _, b := range found {
		if major == "" || b.major() == major {
			return b, nil
		}
		have = append(have, b.version)
	}
	if major == Version18 {
		b, err := fetch(ctx, user)
		if err != nil {
			return binaries{}, fmt.Errorf("PostgreSQL %s is missing: %w", major, err)
		}
		return b, nil
	}
	if major == "" {
		return binaries{}, errNoBinaries
	}
	return binaries{}, fmt.Errorf("PostgreSQL %s is needed, and this machine has %q", major, have)
}

// lookForBinaries returns what is installed, newest first, PATH's last.
func lookForBinaries() []binaries {
	var dirs []string
	for _, pattern := range searched {
		match, _ := filepath.Glob(pattern)
		dirs = append(dirs, match...)
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return cmp.Compare(numberIn(b), numberIn(a)) })
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	var found []binaries
	for _, dir := range dirs {
		if b, err := programsIn(dir); err == nil {
			found = append(found, b)
		}
	}
	return found
}

// programsIn returns the server programs in a folder.
func programsIn(dir string) (binaries, error) {
	b := binaries{dir: dir}
	if _, err := os.Stat(b.path("initdb")); err != nil {
		return b, err
	}
	out, err := exec.Command(b.path("postgres"), "--version").Output()
	b.version = strings.TrimSpace(string(out))
	return b, err
}

// numberIn returns the version number in a path such as /usr/lib/postgresql/15/bin.
func numberIn(path string) float64 {
	start := strings.IndexAny(path, "0123456789")
	if start < 0 {
		return 0
	}
	text := path[start:]
	if end := strings.IndexFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); end >= 0 {
		text = text[:end]
	}
	number, _ := strconv.ParseFloat(text, 64)
	return number
}

// clusterVersion returns the major version of the cluster in a server's folder,
// or nothing when there is none.
func clusterVersion(dir string) string {
	if dir == "" {
		return ""
	}
	text, _ := os.ReadFile(filepath.Join(dir, dataName, "PG_VERSION"))
	return strings.TrimSpace(string(text))
}
