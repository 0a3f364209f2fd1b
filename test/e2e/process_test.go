package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/examples/orders/awsemulator"
)

// process is one of the programs at work.
type process struct {
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	output output
	ended  chan struct{}

	mu      sync.Mutex
	stopped bool // by the test
}

// output keeps the beginning and the end of what a program says.
type output struct {
	mu         sync.Mutex
	head, tail []byte
	news       news
}

const keepOutput = 16 << 10

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	n := min(len(p), keepOutput-len(o.head))
	o.head = append(o.head, p[:n]...)
	o.tail = append(o.tail, p[n:]...)
	if len(o.tail) > 2*keepOutput {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-keepOutput:]...)
	}
	o.mu.Unlock()
	o.news.tell()
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.head) + string(o.tail)
}

// environment of the programs: the test's own without what speaks of AWS or of
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
	env = append(env,
		"AWS_REGION="+awsemulator.Region, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"AWS_CONFIG_FILE="+none, "AWS_SHARED_CREDENTIALS_FILE="+none, "AWS_EC2_METADATA_DISABLED=true",
		"ORDERS_FULFILMENT_ADDR=127.0.0.1:0", "GORACE=halt_on_error=1 exitcode=66")
	return append(env, extra...)
}

// start starts a program. The end of the test ends it, and shows what it said
// if the test failed; ending by itself fails the test.
func start(t testing.TB, env []string, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: program, cmd: exec.Command(filepath.Join(programs, program), args...), ended: make(chan struct{})}
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
			t.Errorf("%s (process %d) ended by itself: %v", program, p.cmd.Process.Pid, err)
		}
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s %s (process %d: %s) said:\n%s", program, strings.Join(args, " "), p.cmd.Process.Pid, p.cmd.ProcessState, p.output.String())
		}
	})
	return p
}

// run runs a program to its end, which must be a good one.
func run(t testing.TB, env []string, program string, args ...string) (stdout string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, program), args...)
	cmd.Dir, cmd.Env = t.TempDir(), env
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, out, said.Bytes())
	}
	return string(out)
}

// end notes that the process ends by the test's will, and sends the signal.
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

// signal sends a signal that does not end the process.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Error(err)
	}
}

// terminate ends the process as an operator does, and returns its exit code.
func (p *process) terminate() int {
	p.t.Helper()
	p.end(syscall.SIGTERM)
	return p.code()
}

// code waits for the end, and returns the exit code; -1 after a signal.
func (p *process) code() int {
	p.t.Helper()
	await(p.t, patience, &p.output.news, p.name+" ends", func() string {
		select {
		case <-p.ended:
			return ""
		default:
			return "it still runs"
		}
	})
	return p.cmd.ProcessState.ExitCode()
}

// said waits until the process has said the mark, and returns what follows it
// up to a space or the end of the line.
func (p *process) said(mark string) (word string) {
	p.t.Helper()
	await(p.t, patience, &p.output.news, p.name+" says "+mark, func() string {
		for line := range strings.Lines(p.output.String()) {
			if _, after, ok := strings.Cut(line, mark); ok && strings.HasSuffix(line, "\n") {
				word, _, _ = strings.Cut(strings.TrimSuffix(after, "\n"), " ")
				return ""
			}
		}
		return "it says " + p.output.String()
	})
	return word
}

// monitorClient does not wait for a relay that is stopped.
var monitorClient = &http.Client{Timeout: 5 * time.Second}

// metric reads one of a relay's figures from its monitor; what is the metric's
// name with its labels.
func (p *process) metric(what string) (float64, error) {
	response, err := monitorClient.Get("http://" + p.said(" http=") + "/metrics")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), what+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return 0, fmt.Errorf("there is no metric %s", what)
}

// holds waits until the relay has the leases of so many shards of a route.
func (p *process) holds(route string, shards int) {
	p.t.Helper()
	p.awaitMetric(fmt.Sprintf("postrider_shards_held{route=%q}", route), func(v float64) bool { return v == float64(shards) })
}

func (p *process) awaitMetric(what string, ok func(float64) bool) {
	p.t.Helper()
	await(p.t, patience, &p.output.news, what, func() string {
		v, err := p.metric(what)
		return unless(err == nil && ok(v), "it is %v (%v)", v, err)
	})
}
