package relayprocess

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/relay"
)

// Config is what a Process needs.
type Config struct {
	Settings
	// Taken and Sent are called with the keys of the messages whose publish
	// began, or that the broker acknowledged. Required.
	Taken, Sent func(keys []string, at time.Time)
	// Changed is called when State has changed. Required.
	Changed func()
	// Logger reports children that end by themselves. Default: slog.Default.
	Logger *slog.Logger
}

// State is how the relay is.
type State struct {
	Status
	// PID of the child that runs; 0 while none does.
	PID int
}

// Timing of restarts.
const (
	// Absence is how long a killed child stays away.
	Absence = 3 * time.Second
	// crashPause is the pause after a child that ended by itself.
	crashPause = time.Second
	// stopTimeout is how long a child may take to stop.
	stopTimeout = 30 * time.Second
)

// Process keeps one child running. Its methods are safe for concurrent use.
type Process struct {
	config Config
	log    *slog.Logger

	mu    sync.Mutex
	state State
	child *exec.Cmd
}

// New returns a Process that Run starts.
func New(c Config) *Process {
	p := &Process{config: c, log: c.Logger}
	if p.log == nil {
		p.log = slog.Default()
	}
	return p
}

// Run keeps a child running until ctx ends; then it stops the child and waits
// until everything that was sent is recorded.
func (p *Process) Run(ctx context.Context) error {
	for {
		killed, err := p.once(ctx)
		if ctx.Err() != nil && killed {
			return nil // by somebody else; what it had not recorded is sent again some day
		}
		if ctx.Err() != nil {
			return err
		}
		pause := Absence
		if !killed {
			p.log.ErrorContext(ctx, "the relay's process ended by itself; starting another", "error", err)
			pause = crashPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			// The next child would only stop again: what it would send stays in
			// the log.
			return nil
		}
	}
}

// State is how the relay is just now.
func (p *Process) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Kill ends the child as kill -9 does, and returns the process id that it had;
// 0 if none was running. Run starts another after Absence.
func (p *Process) Kill() (pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil {
		return 0
	}
	pid = p.child.Process.Pid
	_ = p.child.Process.Kill() // it may have ended just now
	return pid
}

// once runs one child to its end. killed means that it did not end by itself,
// and not because it took too long to stop either.
func (p *Process) once(ctx context.Context) (killed bool, err error) {
	program, err := os.Executable()
	if err != nil {
		return false, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(program, Command)
	cmd.Env = append(withoutEmulator(os.Environ()),
		variableDB+"="+p.config.DB, variableTo+"="+p.config.To, variableEndpoint+"="+p.config.Endpoint)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return false, fmt.Errorf("start the relay: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return false, fmt.Errorf("start the relay: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start the relay: %w", err)
	}
	p.set(func(s *State) {
		s.Status = Status{}
		s.PID = cmd.Process.Pid
		p.child = cmd
	})
	stopped := context.AfterFunc(ctx, func() { _ = stdin.Close() })
	defer stopped()
	ended := make(chan struct{})
	var slow atomic.Bool
	defer context.AfterFunc(ctx, func() {
		select {
		case <-ended:
		case <-time.After(stopTimeout):
			slow.Store(true)
			_ = cmd.Process.Kill() // it may have ended just now
		}
	})()
	loose := p.read(stdout)
	err = cmd.Wait()
	close(ended)
	p.set(func(s *State) {
		s.Status = Status{}
		s.PID = 0
		p.child = nil
	})
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && !exit.Exited() {
		return !slow.Load(), fmt.Errorf("the relay's process was killed: %w", err)
	}
	if err != nil {
		return false, fmt.Errorf("the relay's process: %w", err)
	}
	if loose > 0 {
		return false, &relay.UnsettledError{Messages: loose}
	}
	return false, nil
}

// read takes in the child's reports until it ends, and returns how many
// messages it left unsettled.
func (p *Process) read(from io.Reader) (loose int) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return loose // what a killed child wrote of its last line says nothing
		}
		var r report
		if err := json.Unmarshal(line, &r); err != nil {
			p.log.Error("a report of the relay's process cannot be read", "error", err)
			continue
		}
		switch r.Kind {
		case taken:
			p.config.Taken(r.Keys, r.At)
		case sent:
			p.config.Sent(r.Keys, r.At)
		case status:
			loose = r.Status.Loose
			p.set(func(s *State) { s.Status = *r.Status })
		}
	}
}

func (p *Process) set(change func(*State)) {
	p.mu.Lock()
	change(&p.state)
	p.mu.Unlock()
	p.config.Changed()
}

// withoutEmulator removes what concerns the parent's emulator alone.
func withoutEmulator(env []string) []string {
	var kept []string
	for _, variable := range env {
		if !strings.HasPrefix(variable, "KUMO_") {
			kept = append(kept, variable)
		}
	}
	return kept
}
