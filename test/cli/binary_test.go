// Package cli_test drives the postrider binary as an operator does: arguments,
// variables, files, signals and exit codes.
package cli_test

import (
	"bytes"
	"context"
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

// patience bounds every wait; nothing here is expected to take it.
const patience = 60 * time.Second

// binary is the built postrider.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "postrider-cli-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "postrider")
		args := []string{"build", "-buildvcs=false", "-ldflags", "-X main.version=v9.8.7-test -X main.commit=abc123", "-o", binary}
		if raceDetector {
			args = append(args, "-race")
		}
		build := exec.Command("go", append(args, "github.com/postrider/postrider/cmd/postrider")...)
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build postrider: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// process is a postrider that runs, or has run.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout buffer
	stderr buffer
	ended  chan struct{}
	code   int
}

// buffer can be read while the process writes.
type buffer struct {
	mu   sync.Mutex
	data bytes.Buffer
	news chan struct{} // closed and replaced by every write
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.news != nil {
		close(b.news)
	}
	b.news = make(chan struct{})
	return b.data.Write(p)
}

func (b *buffer) String() string {
	text, _ := b.look()
	return text
}

func (b *buffer) look() (string, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.news == nil {
		b.news = make(chan struct{})
	}
	return b.data.String(), b.news
}

// world is what a process is started in.
type world struct {
	dir string   // working directory; empty: an empty one
	env []string // on top of PATH, HOME and dummy AWS settings
}

// start runs postrider; the test's end ends it.
func (w world) start(t *testing.T, args ...string) *process {
	t.Helper()
	if w.dir == "" {
		w.dir = t.TempDir()
	}
	p := &process{t: t, cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	p.cmd.Dir = w.dir
	p.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "AWS_REGION=eu-west-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"AWS_ENDPOINT_URL=http://127.0.0.1:1", "AWS_EC2_METADATA_DISABLED=true", "GORACE=halt_on_error=1 exitcode=66",
	}, w.env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		err := p.cmd.Wait()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			p.code = exit.ExitCode()
		} else if err != nil {
			p.code = -2
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended, mostly
		<-p.ended
		if t.Failed() {
			t.Logf("postrider %s\nexit %d\nstdout:\n%s\nstderr:\n%s", strings.Join(args, " "), p.code, end(p.stdout.String()), end(p.stderr.String()))
		}
	})
	return p
}

// end is the last part of a long text.
func end(s string) string {
	const most = 3000
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

// run runs postrider to its end.
func (w world) run(t *testing.T, args ...string) *process {
	t.Helper()
	p := w.start(t, args...)
	p.wait()
	return p
}

func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("it did not end; stderr:\n%s", p.stderr.String())
	}
	return p.code
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// awaitLog waits until stderr has the text, and returns the line that has it.
func (p *process) awaitLog(text string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for {
		all, news := p.stderr.look()
		for line := range strings.Lines(all) {
			if strings.Contains(line, text) && strings.HasSuffix(line, "\n") {
				return line
			}
		}
		select {
		case <-news:
		case <-p.ended:
			if all := p.stderr.String(); !strings.Contains(all, text) {
				p.t.Fatalf("it ended with %d and never said %q:\n%s", p.code, text, all)
			}
		case <-ctx.Done():
			p.t.Fatalf("it never said %q:\n%s", text, all)
		}
	}
}

// wantExit checks the code and that stderr has every one of the texts.
func (p *process) wantExit(code int, texts ...string) {
	p.t.Helper()
	if got := p.wait(); got != code {
		p.t.Errorf("exit %d, want %d", got, code)
	}
	all := p.stderr.String()
	for _, text := range texts {
		if !strings.Contains(all, text) {
			p.t.Errorf("stderr lacks %q", text)
		}
	}
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
