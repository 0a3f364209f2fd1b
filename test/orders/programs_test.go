package orders

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/examples/orders/awsemulator"
)

// The programs are built once, when the first test needs one, with the race
// detector if the test has it.
var (
	programDir string
	build      = sync.OnceValue(func() error {
		for name, source := range map[string]string{
			"orders":    "github.com/postrider/postrider/examples/orders",
			"postrider": "github.com/postrider/postrider/cmd/postrider",
		} {
			args := append([]string{"build", "-buildvcs=false", "-o", filepath.Join(programDir, name)}, buildFlags...)
			out, err := exec.Command("go", append(args, source)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("build %s: %w\n%s", name, err, out)
			}
		}
		return nil
	})
)

func TestMain(m *testing.M) {
	var err error
	if programDir, err = os.MkdirTemp("", "orders-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(programDir)
	os.Exit(code)
}

// environment is that of the programs: the test's own without anything that
// speaks of AWS, plus what is given, as NAME=value.
func environment(t testing.TB, extra ...string) []string {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "AWS_") && !strings.HasPrefix(variable, "ORDERS_") &&
			!strings.HasPrefix(variable, "POSTRIDER_") && !strings.HasPrefix(variable, "DATABASE_URL=") && !strings.HasPrefix(variable, "KUMO_") {
			env = append(env, variable)
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	env = append(env, "AWS_CONFIG_FILE="+none, "AWS_SHARED_CREDENTIALS_FILE="+none, "AWS_EC2_METADATA_DISABLED=true",
		"ORDERS_FULFILMENT_ADDR=127.0.0.1:0")
	return append(env, extra...)
}

// emulated is the environment that reaches the test's emulated AWS.
func (a *awsRig) environment() []string {
	return environment(a.t,
		"AWS_ENDPOINT_URL="+a.server.Endpoint, "AWS_REGION="+awsemulator.Region,
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"ORDERS_QUEUE="+a.queue, "ORDERS_TABLE="+a.table)
}

func command(t testing.TB, env []string, program string, args ...string) *exec.Cmd {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(programDir, program), args...)
	cmd.Env = env
	cmd.Dir = t.TempDir()
	return cmd
}

// outcome is how a program ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// run runs a program to its end.
func run(t testing.TB, env []string, program string, args ...string) outcome {
	t.Helper()
	cmd := command(t, env, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Start()
	if err == nil {
		timer := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		timer.Stop()
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// must ends the test unless the program ended well.
func (o outcome) must(t testing.TB) outcome {
	t.Helper()
	if o.code != 0 {
		t.Fatalf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	return o
}

// running is a program that runs until it is stopped.
type running struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines chan string // what it says, on both streams
	done  chan struct{}
}

// start starts a program, and kills it when the test ends.
func start(t testing.TB, env []string, program string, args ...string) *running {
	t.Helper()
	cmd := command(t, env, program, args...)
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, cmd: cmd, lines: make(chan string, 100_000), done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		_ = writer.Close()
		close(r.done)
	}()
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(r.lines)
		for scanner := bufio.NewScanner(reader); scanner.Scan(); {
			fmt.Fprintf(t.Output(), "%s: %s\n", program, scanner.Text())
			r.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-r.done
		<-read
	})
	return r
}

// await returns what follows mark in the first line that has it, up to a space.
func (r *running) await(mark string) string {
	r.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line, ok := <-r.lines:
			if !ok {
				r.t.Fatalf("%s ended, code %d, and never said %q", r.cmd, r.cmd.ProcessState.ExitCode(), mark)
			}
			if _, after, found := strings.Cut(line, mark); found {
				word, _, _ := strings.Cut(after, " ")
				return word
			}
		case <-timeout:
			r.t.Fatalf("%s never said %q", r.cmd, mark)
		}
	}
}

// stop sends the signal, and returns the exit code.
func (r *running) stop(signal syscall.Signal) int {
	r.t.Helper()
	if err := r.cmd.Process.Signal(signal); err != nil {
		r.t.Fatal(err)
	}
	select {
	case <-r.done:
	case <-time.After(patience):
		r.t.Fatalf("%s does not stop", r.cmd)
	}
	return r.cmd.ProcessState.ExitCode()
}
