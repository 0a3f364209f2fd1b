package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// process is a contender at work.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
	count  atomic.Int64 // messages so far
	ready  chan struct{}
	done   chan struct{} // closed once out and err are there
	out    outcome
	err    error
}

// startProcess starts this program as one contender and waits until it is ready.
func startProcess(ctx context.Context, j job) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self, runOneCommand), ready: make(chan struct{}), done: make(chan struct{})}
	p.cmd.Stderr = &p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.listen(stdout)
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	if err := p.tell(string(text)); err != nil {
		p.kill()
		return nil, err
	}
	select {
	case <-p.ready:
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("%s: %w", j.Contender, p.err)
	}
}

func (p *process) tell(line string) error {
	_, err := io.WriteString(p.stdin, line+"\n")
	return err
}

// listen reads what the process says until it ends.
func (p *process) listen(stdout io.Reader) {
	defer close(p.done)
	said := false
	for lines := bufio.NewReader(stdout); ; { // a result can be a long line
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		what, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch what {
		case "ready":
			close(p.ready)
		case "count":
			n, _ := strconv.ParseInt(rest, 10, 64)
			p.count.Store(n)
		case "result":
			said = true
			p.err = json.Unmarshal([]byte(rest), &p.out)
		}
	}
	err := p.cmd.Wait()
	switch {
	case p.err != nil:
	case p.out.Error != "":
		p.err = errors.New(p.out.Error)
	case err != nil || !said:
		p.err = fmt.Errorf("it ended without a result (%w):\n%s", cmp.Or(err, io.ErrUnexpectedEOF), strings.TrimSpace(p.stderr.String()))
	}
}

// wait returns what the process measured, once it has stopped.
func (p *process) wait(ctx context.Context) (outcome, error) {
	timer := time.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.out, p.err
	case <-timer.C:
		p.kill()
		return outcome{}, errors.New("it did not stop")
	case <-ctx.Done():
		p.kill()
		return outcome{}, ctx.Err()
	}
}

// stopPatience is how long a contender may take to finish what it has begun.
const stopPatience = time.Minute

// kill ends the process, if it still runs.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}
