//go:build linux || darwin

package pgserver

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// onlyMatch returns the one path that a pattern finds.
func onlyMatch(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q %v", pattern, found, err)
	}
	return found[0]
}

// ownTemp gives the test a folder for temporary files, and so templates, of its
// own that every user can reach.
func ownTemp(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, path := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", dir)
	return dir
}

// Damage to the template costs time, never a start.
func TestDamagedTemplate(t *testing.T) {
	tmp := ownTemp(t)
	first := start(t, Options{})
	template := onlyMatch(t, filepath.Join(tmp, templatePrefix+"*-*[0-9a-f]"))
	if !whole(template) {
		t.Fatal("a new template is not whole")
	}

	// Visible: a file is shorter than it was.
	if err := os.Truncate(filepath.Join(template, dataName, "PG_VERSION"), 0); err != nil {
		t.Fatal(err)
	}
	if whole(template) {
		t.Error("a shortened file was not seen")
	}
	second := start(t, Options{})
	if second.password == first.password || !whole(template) {
		t.Error("the template was not made again")
	}

	// Invisible: the size is right, the bytes are not.
	control := filepath.Join(template, dataName, "global", "pg_control")
	info, err := os.Stat(control)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(control, make([]byte, info.Size()), 0o600); err != nil {
		t.Fatal(err)
	}
	third := start(t, Options{})
	if third.password == second.password {
		t.Error("the server runs on the damaged template")
	}
	if _, err := os.Stat(template); !os.IsNotExist(err) {
		t.Errorf("the damaged template is still there (%v)", err)
	}
}

// Folders of processes that are gone are cleared away, those in use are not.
func TestSweep(t *testing.T) {
	base := t.TempDir()
	user, err := unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-time.Hour)
	make := func(name string, age time.Time) string {
		dir := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Join(dir, dataName), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, lockName), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, age, age); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	gone, used := make(serverPrefix+"1", long), make(serverPrefix+"2", long)
	fresh, other := make(serverPrefix+"3", time.Now()), make("other", long)
	lock, err := lockNow(filepath.Join(used, lockName))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()

	sweep(base, user)
	for dir, want := range map[string]bool{gone: false, used: true, fresh: true, other: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: there %v, want %v", filepath.Base(dir), err == nil, want)
		}
	}
}

func TestMajor(t *testing.T) {
	for says, want := range map[string]string{
		"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)": "15",
		"postgres (PostgreSQL) 18.4":                           "18",
		"postgres (PostgreSQL) 19devel":                        "19",
		"postgres (PostgreSQL) 19beta1":                        "19",
		"nonsense":                                             "",
	} {
		if got := (binaries{version: says}).major(); got != want {
			t.Errorf("%q: %q, want %q", says, got, want)
		}
	}
}

func TestNewestComesFirst(t *testing.T) {
	if !(numberIn("/usr/lib/postgresql/9.6/bin") < numberIn("/usr/lib/postgresql/15/bin")) ||
		!(numberIn("/usr/lib/postgresql/15/bin") < numberIn("/usr/pgsql-17/bin")) {
		t.Error("versions are compared as texts")
	}
}
