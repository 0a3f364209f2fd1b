// Package services tests the services that react to orders as they run: the
// built program, queues of an emulated SQS behind a proxy that fails on demand,
// and a mail server that catches what is sent.
package services

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for something that must happen. It promises no
// speed.
const patience = 2 * time.Minute

// program is the built program.
var program string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "services-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "orders")
		args := append([]string{"build", "-buildvcs=false", "-o", program}, buildFlags...)
		out, err := exec.Command("go", append(args, "github.com/postrider/postrider/examples/orders")...).CombinedOutput()
		if err != nil {
			fmt.Fprintf(os.Stderr, "build the program: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// eventually waits until check returns nil.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) || t.Context().Err() != nil {
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
}

// process is the program at work.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	output output
	ended  chan struct{}

	mu      sync.Mutex
	stopped bool // by the test
}

type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// environment of the program: the test's own without what speaks of AWS or of
// our settings, plus extra.
func environment(t testing.TB, extra ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		foreign := false
		for _, prefix := range []string{"AWS_", "ORDERS_", "POSTRIDER_", "KUMO_", "DATABASE_URL=", "PG"} {
			foreign = foreign || strings.HasPrefix(v, prefix)
		}
		if !foreign {
			env = append(env, v)
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	env = append(env, "AWS_CONFIG_FILE="+none, "AWS_SHARED_CREDENTIALS_FILE="+none, "AWS_EC2_METADATA_DISABLED=true",
		"GORACE=halt_on_error=1 exitcode=66")
	return append(env, extra...)
}

// start starts the program. The end of the test ends it, and shows what it said
// if the test failed; ending by itself fails the test.
func start(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = t.TempDir(), env
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		err := p.cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.stopped {
			t.Errorf("%v ended by itself: %v", args, err)
		}
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			said := p.output.String()
			t.Logf("%v (%s) said:\n%s", args, p.cmd.ProcessState, said[:min(len(said), 20_000)])
		}
	})
	return p
}

func (p *process) end(s syscall.Signal) {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	_ = p.cmd.Process.Signal(s) // it may have ended already
}

// kill ends the process as kill -9 does, and returns when it is gone.
func (p *process) kill() {
	p.end(syscall.SIGKILL)
	<-p.ended
}

// terminate ends the process as an operator does. It must end well.
func (p *process) terminate() {
	p.t.Helper()
	p.end(syscall.SIGTERM)
	p.gone()
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("exit code %d", code)
	}
}

// gone waits for the end.
func (p *process) gone() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatal("it does not end")
	}
}

// said waits until the process has said the mark, and returns what follows it
// up to a space or the end of the line.
func (p *process) said(mark string) (word string) {
	p.t.Helper()
	eventually(p.t, "it says "+mark, func() error {
		for line := range strings.Lines(p.output.String()) {
			if _, after, ok := strings.Cut(line, mark); ok && strings.HasSuffix(line, "\n") {
				word, _, _ = strings.Cut(strings.TrimSuffix(after, "\n"), " ")
				return nil
			}
		}
		return errors.New("it says " + p.output.String())
	})
	return word
}

// run runs the program to its end.
func run(t testing.TB, env []string, args ...string) (code int, said string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = t.TempDir(), env
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait() // the exit code tells
	return cmd.ProcessState.ExitCode(), out.String()
}
