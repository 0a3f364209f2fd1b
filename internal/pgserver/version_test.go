//go:build linux || darwin

package pgserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestVersion18(t *testing.T) {
	s := start(t, Options{Version: Version18})
	if got := ask(t, s, "SELECT current_setting('server_version_num')::int / 10000 || ''"); got != "18" {
		t.Errorf("the server is of version %s", got)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(deadline(t)); err != nil {
		t.Fatal(err)
	}
}

func TestVersionThatIsNotThere(t *testing.T) {
	if _, err := Start(deadline(t), Options{Version: "11"}); err == nil || !strings.Contains(err.Error(), "PostgreSQL 11 is needed") {
		t.Errorf("version 11: %v", err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, dataName), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, dataName, "PG_VERSION"), []byte("15\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(deadline(t), Options{Dir: dir, Version: Version18}); err == nil || !strings.Contains(err.Error(), "is of PostgreSQL 15") {
		t.Errorf("a folder of another version: %v", err)
	}
}

// What the package lists leads nowhere else.
func TestLinksOfThePackage(t *testing.T) {
	for list, fits := range map[string]bool{
		`[{"source":"native/lib/libpq.so.5.18","target":"native/lib/libpq.so"}]`: true,
		`[{"source":"native/lib/libpq.so","target":"native/../../x"}]`:           false,
		`[{"source":"native/lib/libpq.so","target":"/etc/x"}]`:                   false,
		`[{"source":"/etc/passwd","target":"native/lib/x"}]`:                     false,
		`nothing`: false,
	} {
		native := t.TempDir()
		if err := os.Mkdir(filepath.Join(native, "lib"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(native, "pg-symlinks.json"), []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := linkLibraries(native); (err == nil) != fits {
			t.Errorf("%s: %v", list, err)
		}
	}
}

// A standby follows its primary, and writes once it is promoted.
func TestStandby(t *testing.T) {
	for _, version := range []string{"", Version18} {
		primary := start(t, Options{Version: version})
		ask(t, primary, "CREATE TABLE t AS SELECT 1 AS n")
		standby, err := primary.Standby(deadline(t), map[string]string{"hot_standby_feedback": "on"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := standby.Close(); err != nil {
				t.Error(err)
			}
		})
		ask(t, primary, "INSERT INTO t VALUES (2)")
		for until := time.Now().Add(time.Minute); ask(t, standby, "SELECT count(*) || '' FROM t") != "2"; {
			if time.Now().After(until) {
				t.Fatalf("the standby does not follow; its log ends:\n%s", standby.LogTail())
			}
		}
		if got := ask(t, standby, "SELECT pg_is_in_recovery()::text || current_setting('hot_standby_feedback')"); got != "trueon" {
			t.Errorf("got %s", got)
		}
		if err := primary.Kill(); err != nil {
			t.Fatal(err)
		}
		if got := ask(t, standby, "SELECT pg_promote()::text"); got != "true" {
			t.Errorf("promoted: %s", got)
		}
		ask(t, standby, "INSERT INTO t VALUES (3)")
	}
}
