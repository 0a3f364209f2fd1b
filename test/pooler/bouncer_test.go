package pooler

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/test/internal/debian"
	"github.com/postrider/postrider/test/internal/programs"
)

// bouncer is a PgBouncer before a server, on a port of its own.
type bouncer struct {
	t       testing.TB
	program string
	dir     string
	port    int
	server  *url.URL
	started *exec.Cmd
	hold    io.Closer // it ends when this is closed, or the test
}

// newBouncer starts one that pools transactions before the server of a database;
// settings are written name=value, over those below. The test's end ends it.
func newBouncer(t testing.TB, db string, settings ...string) *bouncer {
	t.Helper()
	program, err := debian.Find(t.Context(), func() string {
		for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer"} {
			if path, err := exec.LookPath(name); err == nil {
				return path
			}
		}
		return ""
	}, "pgbouncer")
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pooler-")
	if err != nil {
		t.Fatal(err)
	}
	b := &bouncer{t: t, program: program, dir: dir, server: server}
	t.Cleanup(func() {
		b.stop()
		if t.Failed() {
			log, _ := os.ReadFile(b.path("log"))
			t.Logf("the end of PgBouncer's log:\n%s", log[max(0, len(log)-4000):])
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	programs.Eventually(t, "PgBouncer starts", nil, func() error { // somebody else may be quicker to take the port
		b.port = freePort(t)
		b.write(settings)
		return b.launch()
	})
	return b
}

func (b *bouncer) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bouncer) write(settings []string) {
	b.t.Helper()
	password, _ := b.server.User.Password()
	ini := map[string]string{
		"listen_addr": "127.0.0.1", "listen_port": strconv.Itoa(b.port), "unix_socket_dir": "", "logfile": b.path("log"),
		"auth_type": "scram-sha-256", "auth_file": b.path("users"), "pool_mode": "transaction",
		"default_pool_size": "4", "max_client_conn": "200", "server_tls_sslmode": "disable",
	}
	if b.keepsStatements() {
		ini["max_prepared_statements"] = "0"
	}
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		ini[name] = value
	}
	var text strings.Builder
	fmt.Fprintf(&text, "[databases]\n* = host=%s port=%s\n[pgbouncer]\n", b.server.Hostname(), b.server.Port())
	for _, name := range slices.Sorted(maps.Keys(ini)) {
		fmt.Fprintf(&text, "%s = %s\n", name, ini[name])
	}
	for name, text := range map[string]string{"ini": text.String(), "users": fmt.Sprintf("%q %q\n", b.server.User.Username(), password)} {
		if err := os.WriteFile(b.path(name), []byte(text), 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
}

// unprivileged is whom it runs as, since it does not run as root.
func (b *bouncer) unprivileged() *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		b.t.Fatal(err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err1 != nil || err2 != nil {
		b.t.Fatal(err1, err2)
	}
	for _, path := range []string{b.dir, b.path("ini"), b.path("users")} {
		if err := os.Chown(path, uid, gid); err != nil {
			b.t.Fatal(err)
		}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// script runs PgBouncer until its own input ends, which is when the test closes
// it, or the test's process is gone.
const script = `"$0" -q "$1" <&- & pid=$!; exec >&-; read -r _; kill -TERM $pid; wait $pid`

// start starts it again.
func (b *bouncer) start() {
	b.t.Helper()
	programs.Eventually(b.t, "PgBouncer starts again", nil, b.launch)
}

// launch starts it, and returns once it answers, or has ended.
func (b *bouncer) launch() error {
	b.t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script, b.program, b.path("ini"))
	cmd.Dir, cmd.SysProcAttr = "/", b.unprivileged()
	hold, err := cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.started, b.hold = cmd, hold
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, out) // it says nothing: its log is a file
	}()
	err = programs.Wait(b.t.Context(), programs.Patience, nil, func() error {
		select {
		case <-ended:
			return nil
		default:
		}
		ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, b.url())
		if err == nil {
			err = conn.Close(ctx)
		}
		return err
	})
	select {
	case <-ended:
		b.stop()
		log, _ := os.ReadFile(b.path("log"))
		return fmt.Errorf("it has ended: %s", log[max(0, len(log)-500):])
	default:
		return err
	}
}

// stop ends it at once, as SIGTERM does: its clients are cut off.
func (b *bouncer) stop() {
	if b.hold == nil {
		return
	}
	_ = b.hold.Close()
	_ = b.started.Wait() // it was ended by a signal
	b.hold = nil
}

// url is the database's through PgBouncer, with parameters such as "a=b".
func (b *bouncer) url(parameters ...string) string {
	u := *b.server
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port))
	u.RawQuery = strings.Join(append([]string{"sslmode=disable"}, parameters...), "&")
	return u.String()
}

// keepsStatements reports whether this version can keep prepared statements for
// its clients (from 1.21 on; its changelog).
func (b *bouncer) keepsStatements() bool {
	b.t.Helper()
	out, err := exec.Command(b.program, "--version").Output()
	if err != nil {
		b.t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "PgBouncer %d.%d", &major, &minor); err != nil {
		b.t.Fatalf("%s: %v", out, err)
	}
	return major > 1 || minor >= 21
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
