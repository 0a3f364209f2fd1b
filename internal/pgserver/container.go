//go:build linux || darwin

package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// containerImage is what runs when the machine has no server programs.
const containerImage = "docker.io/library/postgres:17"

// container is a server in a container: the last resort. It has no folder on this
// machine. Its port is published on loopback alone; its random password tells that
// the server which answers is the one that was started.
type container struct {
	engine string // docker or podman
	id     string
}

// startContainer runs the server in a container of the first engine that answers.
func (s *Server) startContainer(ctx context.Context) error {
	engine, err := findEngine(ctx)
	if err != nil {
		return err
	}
	s.password = newPassword()
	for try := 1; ; try++ {
		if s.port, err = freePort(); err != nil {
			return err
		}
		args := []string{"run", "--detach", "--publish", fmt.Sprintf("127.0.0.1:%d:5432", s.port),
			"--env", "POSTGRES_PASSWORD=" + s.password, containerImage}
		for _, name := range slices.Sorted(maps.Keys(s.settings)) {
			args = append(args, "-c", name+"="+s.settings[name])
		}
		var id string
		if id, err = engineSays(ctx, engine, args...); err == nil {
			s.container = &container{engine, id}
			break
		}
		// Docker leaves the container whose port could not be had, and prints its id.
		if id != "" {
			_, _ = engineSays(ctx, engine, "rm", "--force", "--volumes", id)
		}
		if try == portTries || ctx.Err() != nil {
			return err
		}
	}
	if s.watchdog, err = watch(containerScript, engine, s.container.id); err != nil {
		return err
	}
	return s.awaitContainer(ctx)
}

// containerScript removes container $2 by engine $1 when this process has ended.
const containerScript = `
trap '' HUP INT TERM
while read -r line; do
	if [ "$line" = bye ]; then exit 0; fi
done
"$1" rm --force --volumes "$2"
`

// awaitContainer waits until the server in the container answers.
func (s *Server) awaitContainer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		_, err := s.ask(ctx, "show data_directory")
		if err == nil {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("the server in container %.12s does not answer: %w; its log ends:\n%s", s.container.id, err, s.container.logTail())
		}
	}
}

// findEngine returns the first container engine that answers.
func findEngine(ctx context.Context) (string, error) {
	err := errors.New("neither docker nor podman is installed")
	for _, engine := range []string{"docker", "podman"} {
		if _, missing := exec.LookPath(engine); missing != nil {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err = engineSays(asking, engine, "info", "--format", "{{.ID}}")
		cancel()
		if err == nil {
			return engine, nil
		}
	}
	return "", err
}

// engineSays runs a command of the engine and returns the last line that it prints.
func engineSays(ctx context.Context, engine string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, engine, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", engine, args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	lines := bytes.Split(bytes.TrimSpace(stdout.Bytes()), []byte("\n"))
	return string(lines[len(lines)-1]), err
}

// end signals the server, which is the container's first process, and waits until
// the container has stopped. If ctx ends first the container is killed.
func (c *container) end(ctx context.Context, sig syscall.Signal) error {
	running, err := engineSays(ctx, c.engine, "inspect", "--format", "{{.State.Running}}", c.id)
	if err != nil || running != "true" {
		return err
	}
	if _, err := engineSays(ctx, c.engine, "kill", "--signal", strconv.Itoa(int(sig)), c.id); err != nil {
		return err
	}
	_, err = engineSays(ctx, c.engine, "wait", c.id)
	if err != nil && ctx.Err() != nil && sig != syscall.SIGKILL {
		return errors.Join(fmt.Errorf("stop PostgreSQL: %w; it was killed", context.Cause(ctx)), c.kill())
	}
	return err
}

func (c *container) kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return c.end(ctx, syscall.SIGKILL)
}

// again starts a stopped container; its port stays.
func (c *container) again(ctx context.Context) error {
	_, err := engineSays(ctx, c.engine, "start", c.id)
	return err
}

func (c *container) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := engineSays(ctx, c.engine, "rm", "--force", "--volumes", c.id)
	return err
}

func (c *container) logTail() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, c.engine, "logs", "--tail", "40", c.id).CombinedOutput()
	return string(bytes.TrimSpace(out))
}
