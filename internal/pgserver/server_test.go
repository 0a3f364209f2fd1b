//go:build linux || darwin

package pgserver

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// deadline bounds each test far beyond what it needs.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(deadline(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// ask runs a query on a connection of its own and returns its answer as text.
func ask(t *testing.T, s *Server, query string) (answer string) {
	t.Helper()
	conn, err := pgx.Connect(deadline(t), s.URL("postgres"))
	if err != nil {
		t.Fatalf("%v; the server's log ends:\n%s", err, s.LogTail())
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, err := conn.Query(deadline(t), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&answer); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return answer
}

func TestSettings(t *testing.T) {
	s := start(t, Options{Settings: map[string]string{"timezone": "Asia/Kathmandu", "max_prepared_transactions": "7"}})
	for setting, want := range map[string]string{
		"wal_level": "logical", "max_prepared_transactions": "7", "fsync": "on",
		"TimeZone": "Asia/Kathmandu", "listen_addresses": "127.0.0.1",
	} {
		if got := ask(t, s, "SHOW "+setting); got != want {
			t.Errorf("%s = %q, want %q", setting, got, want)
		}
	}
	_, err := Start(deadline(t), Options{Settings: map[string]string{"listen_addresses": "*"}})
	if err == nil || !strings.Contains(err.Error(), "listen_addresses") {
		t.Errorf("the server was made to listen elsewhere: %v", err)
	}
}

func TestStartFailsWithTheServersWords(t *testing.T) {
	_, err := Start(deadline(t), Options{Settings: map[string]string{"max_connections": "many"}})
	if err == nil || !strings.Contains(err.Error(), `"max_connections"`) {
		t.Errorf("got %v", err)
	}
}

func TestRestartKeepsURLAndData(t *testing.T) {
	s := start(t, Options{})
	url := s.URL("postgres")
	ask(t, s, "CREATE TABLE kept AS SELECT 'here'::text AS word")
	for name, end := range map[string]func() error{
		"Stop":      func() error { return s.Stop(deadline(t)) },
		"Immediate": func() error { return s.Immediate(deadline(t)) },
		"Kill":      s.Kill,
		"nothing":   func() error { return nil },
	} {
		before := s.PID()
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name != "nothing" && s.PID() != 0 {
			t.Errorf("after %s the server has PID %d", name, s.PID())
		}
		if err := s.Restart(deadline(t)); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
		if s.PID() == before || s.URL("postgres") != url {
			t.Errorf("after %s: PID %d then %d, URL %s then %s", name, before, s.PID(), url, s.URL("postgres"))
		}
		if got := ask(t, s, "SELECT word FROM kept"); got != "here" {
			t.Errorf("after %s: the row is %q", name, got)
		}
	}
}

// A crash must lose what only shared memory held, or tests of crashes show nothing.
func TestKillLosesUnsyncedCommits(t *testing.T) {
	s := start(t, Options{Settings: map[string]string{"wal_writer_delay": "10s", "autovacuum": "off"}})
	ask(t, s, "CREATE TABLE r (word text)")
	ask(t, s, "INSERT INTO r VALUES ('synced')")
	conn, err := pgx.Connect(deadline(t), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, statement := range []string{"SET synchronous_commit = off", "INSERT INTO r VALUES ('lost')"} {
		if _, err := conn.Exec(deadline(t), statement); err != nil {
			t.Fatal(err)
		}
	}
	children := childrenOf(s.PID())
	if len(children) < 4 {
		t.Fatalf("found only the processes %v of the server", children)
	}
	pid, segments := s.PID(), sharedMemoryFiles([]int{s.PID()})

	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, p := range append(children, pid) {
		if syscall.Kill(p, 0) == nil && !isZombie(p) {
			t.Errorf("process %d of the server still runs", p)
		}
	}
	for _, path := range segments {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
	if err := s.Restart(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, "SELECT string_agg(word, ' ') FROM r"); got != "synced" {
		t.Errorf("after the crash the table has %q, want only what was synced", got)
	}
}

// Clients, open transactions and quick repetition must not get in the way.
func TestKillAgainAndAgain(t *testing.T) {
	s := start(t, Options{})
	for range 3 {
		for range 5 {
			conn, err := pgx.Connect(deadline(t), s.URL("postgres"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.WithoutCancel(t.Context()))
			if _, err := conn.Exec(deadline(t), "BEGIN; SELECT pg_current_xact_id()"); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDirIsKeptAndUsedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	s := start(t, Options{Dir: dir})
	ask(t, s, "CREATE TABLE kept (word text)")

	_, err := Start(deadline(t), Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("a second server on the same folder: %v", err)
	}
	if got := ask(t, s, "SELECT 'well'"); got != "well" {
		t.Error("the first server suffered from the second")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	// A crash of the machine leaves a pid file whose number is somebody's by now.
	stale := filepath.Join(dir, dataName, pidFileName)
	if err := os.WriteFile(stale, []byte("1\n"+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = start(t, Options{Dir: dir})
	if got := ask(t, s, "SELECT count(*)::text FROM kept"); got != "0" {
		t.Errorf("the table of the kept cluster: %q", got)
	}
}

func TestCloseRemovesTheFolder(t *testing.T) {
	s := start(t, Options{})
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", s.Dir(), err)
	}
	if err := s.Restart(deadline(t)); err == nil {
		t.Error("a closed server was started")
	}
}

func TestStartsNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	s := start(t, Options{})
	for runtime.NumGoroutine() > before { // those of the connections that asked
		if deadline(t).Err() != nil {
			t.Fatal("there are goroutines left")
		}
		runtime.Gosched()
	}
	if s.PID() == 0 {
		t.Error("the server does not run")
	}
}

// A server whose port somebody else has takes another, or says so when clients
// know the port.
func TestPortIsTaken(t *testing.T) {
	other, s := start(t, Options{}), start(t, Options{})
	if err := s.Stop(deadline(t)); err != nil {
		t.Fatal(err)
	}
	s.port = other.port
	err := s.Restart(deadline(t))
	if err == nil || !strings.Contains(err.Error(), "went to somebody else") {
		t.Errorf("two servers on one port: %v", err)
	}
	if got := ask(t, other, "SELECT 'well'"); got != "well" {
		t.Error("the other server suffered")
	}
}

// Somebody else's server that answers on our port is not taken for ours.
func TestAnotherServerAnswers(t *testing.T) {
	other := start(t, Options{})
	bystander := exec.Command("sleep", "60")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bystander.Process.Kill(); _ = bystander.Wait() }()
	s := &Server{port: other.port, password: other.password, pid: bystander.Process.Pid}
	err := s.awaitReady(deadline(t))
	if err == nil || !strings.Contains(err.Error(), "the server of process "+strconv.Itoa(other.PID())) {
		t.Errorf("got %v", err)
	}
}

func TestManyStartAtOnceWithoutTemplate(t *testing.T) {
	ownTemp(t)
	var servers [3]*Server
	var wg sync.WaitGroup
	for i := range servers {
		wg.Go(func() {
			s, err := Start(deadline(t), Options{})
			if err != nil {
				t.Error(err)
				return
			}
			servers[i] = s
		})
	}
	wg.Wait()
	for _, s := range servers {
		if s == nil {
			continue
		}
		if s.password != servers[0].password {
			t.Error("the servers come from more than one template")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Root's own folders are closed to the user that the server runs under.
func TestFolderBelowAClosedOne(t *testing.T) {
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, fresh := range map[string]bool{"fresh": true, "closed": false} {
		o := Options{Dir: filepath.Join(closed, name), Fresh: fresh}
		if name == "closed" {
			if err := os.Mkdir(o.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		s := start(t, o)
		ask(t, s, "CREATE TABLE kept (word text)")
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(deadline(t)); err != nil {
			t.Fatal(err)
		}
		ask(t, s, "SELECT pg_reload_conf()::text")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = start(t, Options{Dir: o.Dir})
		if got := ask(t, s, "SELECT count(*)::text FROM kept"); got != "0" {
			t.Errorf("%s: the table of the kept cluster: %q", name, got)
		}
	}
}
