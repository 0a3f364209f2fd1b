//go:build linux || darwin

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

var (
	errPortLost = errors.New("the port went to somebody else")
	errEnded    = errors.New("the server ended")
)

// run starts the postmaster and waits until it answers. A server that had a port
// keeps it, since its clients know it.
func (s *Server) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	keep := s.port != 0
	for try := 1; ; try++ {
		if !keep {
			port, err := freePort()
			if err != nil {
				return err
			}
			s.port = port
		}
		err := s.runOnce(ctx)
		if err == nil || !errors.Is(err, errPortLost) || try == portTries {
			return err
		}
		if keep && !pause(ctx, 250*time.Millisecond) {
			return err
		}
	}
}

func (s *Server) runOnce(ctx context.Context) error {
	log, err := os.OpenFile(s.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	before, err := log.Seek(0, 2)
	if err != nil {
		return err
	}

	cmd := exec.Command(s.bin.path("postgres"))
	data, done, err := s.user.reach(cmd, s.data())
	if err != nil {
		return err
	}
	defer done()
	cmd.Args = append(cmd.Args, "-D", data, "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
	for _, name := range slices.Sorted(maps.Keys(s.settings)) {
		cmd.Args = append(cmd.Args, "-c", name+"="+s.settings[name])
	}
	cmd.Dir, cmd.Env = "/", cleanEnv()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = s.user.attr()
	// A session of its own: the terminal's Ctrl-C is for this process, which then
	// stops the server in order.
	cmd.SysProcAttr.Setsid = true
	if err := cmd.Start(); err != nil {
		return err
	}
	s.pid = cmd.Process.Pid
	s.watchdog.guard(s.pid)

	err = s.awaitReady(ctx)
	if err == nil {
		return nil
	}
	said := tail(s.logPath, before)
	s.crash()
	if errors.Is(err, errEnded) && (strings.Contains(said, "could not bind") || strings.Contains(said, "could not create any TCP/IP sockets")) {
		err = errPortLost
	}
	return fmt.Errorf("%w; its log ends:\n%s", err, said)
}

// runsOn asks a server for the number of its postmaster, as its data folder has it.
const runsOn = "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)"

// awaitReady waits until the server answers, and answers as the process that we
// started.
func (s *Server) awaitReady(ctx context.Context) error {
	var last error
	for {
		if s.ended() {
			return errEnded
		}
		pid, err := s.ask(ctx, runsOn)
		switch {
		case err == nil && pid == strconv.Itoa(s.pid):
			return nil
		case err == nil:
			return fmt.Errorf("%w: the server of process %s answers on port %d", errPortLost, pid, s.port)
		case ctx.Err() == nil:
			last = err
		}
		if !pause(ctx, 20*time.Millisecond) {
			return fmt.Errorf("the server does not answer (%w): %w", context.Cause(ctx), last)
		}
	}
}

// ask runs a query that has one text as its answer.
func (s *Server) ask(ctx context.Context, query string) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, query).Scan(&answer)
	return answer, err
}

// Stop ends the server with a fast shutdown: clients are cut off, what they had
// not committed is rolled back, and a checkpoint is written. If ctx ends first,
// the server is killed and ctx's error returned. The folder stays, for Restart.
func (s *Server) Stop(ctx context.Context) error { return s.end(ctx, syscall.SIGINT) }

// Immediate ends the server without a checkpoint (immediate shutdown), so that
// the next start recovers. Unlike after Kill, the server's processes leave by
// themselves. If ctx ends first, the server is killed and ctx's error returned.
func (s *Server) Immediate(ctx context.Context) error { return s.end(ctx, syscall.SIGQUIT) }

// Kill crashes the server: the postmaster and all its processes get SIGKILL at
// once, so that what is in their shared memory is lost: commits under
// synchronous_commit=off above all. It returns when they are gone and what would
// keep a restart from working is cleared away. A stopped server stays as it is.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if s.container != nil {
		return s.container.kill()
	}
	s.crash()
	return nil
}

// Restart starts the server again on the same port with the same data; a running
// one is stopped first, as by Stop.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("restart PostgreSQL: the server is closed")
	}
	var err error
	if s.container == nil {
		err = s.run(ctx)
	} else if err = s.container.again(ctx); err == nil {
		err = s.awaitContainer(ctx)
	}
	if err != nil {
		return fmt.Errorf("restart PostgreSQL: %w", err)
	}
	return nil
}

func (s *Server) end(ctx context.Context, sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if s.container != nil {
		return s.container.end(ctx, sig)
	}
	if s.pid == 0 {
		return nil
	}
	_ = syscall.Kill(s.pid, sig)
	for !s.ended() {
		if !pause(ctx, 5*time.Millisecond) {
			s.crash()
			return fmt.Errorf("stop PostgreSQL: %w; it was killed", context.Cause(ctx))
		}
	}
	return nil
}

// ended reports whether the postmaster is gone, and takes note of it. It asks the
// system each time, so that no goroutine has to wait for the process.
func (s *Server) ended() bool {
	if s.pid == 0 {
		return true
	}
	if !reaped(s.pid) {
		return false
	}
	s.pid = 0
	s.watchdog.guard(0)
	return true
}

func (s *Server) crash() {
	if s.pid == 0 {
		return
	}
	killTree(s.pid)
	clearSharedMemory(s.pidFile())
	s.pid = 0
	s.watchdog.guard(0)
}

// freePort returns a port that nobody listens on. It lies below the range that
// systems draw from for outgoing connections and for port 0, so that hardly
// anybody takes it between a kill and a restart.
func freePort() (int, error) {
	for range 100 {
		l, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(15000+rand.IntN(17000)))
		if err == nil {
			port := l.Addr().(*net.TCPAddr).Port
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port found on 127.0.0.1")
}

// pause waits and reports whether ctx still runs.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func samePath(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// cleanEnv is the environment of the server programs: nothing that the caller's
// PostgreSQL client or locale settings could change.
func cleanEnv() []string {
	env := []string{"LC_ALL=C", "LANG=C"}
	for _, name := range []string{"PATH", "TMPDIR", "TZ", "HOME", "LD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
