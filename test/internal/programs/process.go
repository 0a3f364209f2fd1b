package programs

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a program at work. Its methods but Kill and End belong to the
// goroutine.
type Process struct {
	// Output is what the program says, on both streams.
	Output Output

	t     testing.TB
	name  string
	cmd   *exec.Cmd
	ended chan struct{}

	mu      sync.Mutex
	stopped bool // by the test
}

// Start starts a program. The end of the test ends it, and shows what it said
// if the test failed; ending by itself fails the test.
func Start(t testing.TB, env []string, name string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, name: name, cmd: command(t, env, name, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.Output, &p.Output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	words := name + " " + strings.Join(args, " ")
	go func() {
		defer close(p.ended)
		err := p.cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.stopped {
			t.Errorf("%s (process %d) ended by itself: %v", words, p.cmd.Process.Pid, err)
		}
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s (process %d: %s) said:\n%s", words, p.cmd.Process.Pid, p.cmd.ProcessState, p.Output.String())
		}
	})
	return p
}

// ID is the number of the process.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// End notes that the process ends by the test's will, and sends the signal.
func (p *Process) End(s syscall.Signal) {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	_ = p.cmd.Process.Signal(s) // it may have ended already
}

// Kill ends the process as kill -9 does, and returns when it is gone.
func (p *Process) Kill() {
	p.End(syscall.SIGKILL)
	<-p.ended
}

// Signal sends a signal that does not end the process.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Error(err)
	}
}

// Terminate ends the process as an operator does, and returns its exit code.
func (p *Process) Terminate() int {
	p.t.Helper()
	p.End(syscall.SIGTERM)
	return p.Code()
}

// Stop ends the process as an operator does. It must end well.
func (p *Process) Stop() {
	p.t.Helper()
	if code := p.Terminate(); code != 0 {
		p.t.Errorf("%s: exit code %d", p.name, code)
	}
}

// Code waits for the end, and returns the exit code; -1 after a signal.
func (p *Process) Code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(Patience):
		p.t.Fatalf("%s does not end", p.name)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Said waits until the process has said the mark, and returns what follows it
// up to a space or the end of the line.
func (p *Process) Said(mark string) (word string) {
	p.t.Helper()
	Eventually(p.t, p.name+" says "+mark, &p.Output.News, func() error {
		for line := range strings.Lines(p.Output.String()) {
			if _, after, ok := strings.Cut(line, mark); ok && strings.HasSuffix(line, "\n") {
				word, _, _ = strings.Cut(strings.TrimSuffix(after, "\n"), " ")
				return nil
			}
		}
		return errors.New("it says " + p.Output.String())
	})
	return word
}

// Output keeps the beginning and the end of what a program says.
type Output struct {
	// News tells of each write.
	News News

	mu         sync.Mutex
	head, tail []byte
	lines      int64
}

const keepOutput = 16 << 10

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	n := min(len(p), keepOutput-len(o.head))
	o.head = append(o.head, p[:n]...)
	o.lines += int64(bytes.Count(p, []byte("\n")))
	o.tail = append(o.tail, p[n:]...)
	if len(o.tail) > 2*keepOutput {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-keepOutput:]...)
	}
	o.mu.Unlock()
	o.News.Tell()
	return len(p), nil
}

// Lines is how many lines were said so far.
func (o *Output) Lines() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lines
}

// String returns what is kept.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.head) + string(o.tail)
}
