package pooler

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/pgserver"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/test/internal/debian"
	"github.com/postrider/postrider/test/internal/programs"
)

// The server's clock and that of this machine differ by an hour: what is due, what
// has expired, who is alive, and what an operator means by "the last minutes" goes
// by the server's. (Programs in Go do not ask the library that lies about the time,
// so it is the server that is told another one.)
func TestClocksThatDiffer(t *testing.T) {
	t.Parallel()
	preload, err := debian.Find(t.Context(), func() string { return findLibrary("faketime/libfaketime.so.1") }, "libfaketime")
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []string{"+3600", "-3600"} {
		t.Run(off, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Server(t)
			elsewhen(t, server, preload, off)
			url := server.URL("postgres")
			owner := connect(t, url)
			var now time.Time
			if err := owner.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now); err != nil {
				t.Fatal(err)
			}
			if apart := time.Until(now).Abs(); apart < 59*time.Minute || apart > 61*time.Minute {
				t.Fatalf("the clocks are %s apart", apart)
			}
			p := newPost(t, url, owner, "postrider")
			p.lease = "3s" // of one that dies
			one, two := p.relay(), p.relay()
			p.enqueue(50)
			p.put(outbox.Message{Topic: "nowhere", Key: "k", Payload: []byte("{}")})
			execute(t, owner, `SELECT postrider.enqueue('`+p.queue+`', '{"by":"later"}', not_before => clock_timestamp() + interval '1 s')`,
				`SELECT postrider.enqueue('`+p.queue+`', '{"by":"never"}', expires => clock_timestamp())`)
			p.sent++
			p.arrive()
			p.settled(outbox.StateFailed, 1)
			p.settled(outbox.StateExpired, 1)
			p.run("retry", "--route", "default", "--since", "20m", "--yes")
			p.settled(outbox.StateFailed, 1)
			if got := p.run("list", "--state", "expired", "--since", "20m"); !strings.Contains(got, p.queue) {
				t.Errorf("list --since 20m: %s", got)
			}
			one.Kill()
			p.enqueue(50)
			p.arrive()
			two.Stop()
			p.nothingMore()
		})
	}
}

// elsewhen starts the server anew with another clock.
func elsewhen(t *testing.T, server *pgserver.Server, preload, off string) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d", server.PID())
	program, err := os.Readlink(proc + "/exe")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(proc)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// It ends when its input does: with the test, or with the test's process.
	const script = `"$0" "$@" & pid=$!; read -r _; kill -QUIT $pid; wait $pid`
	cmd := exec.Command("/bin/sh", "-c", script, "/usr/bin/env", "LD_PRELOAD="+preload, "FAKETIME="+off, "FAKETIME_DONT_FAKE_MONOTONIC=1", program,
		"-D", filepath.Join(server.Dir(), "data"), "-p", at.Port(), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
	cmd.Dir, cmd.Env = "/", []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	if owner := info.Sys().(*syscall.Stat_t); int(owner.Uid) != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	var said programs.Output
	cmd.Stdout, cmd.Stderr = &said, &said
	var hold io.Closer
	if hold, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = hold.Close()
		_ = cmd.Wait() // it is ended by a signal
		if t.Failed() {
			t.Logf("the server said\n%s", said.String())
		}
	})
	programs.Eventually(t, "the server answers", nil, func() error {
		conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
		if err == nil {
			err = conn.Close(t.Context())
		}
		return err
	})
}
