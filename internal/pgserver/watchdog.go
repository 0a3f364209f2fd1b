//go:build linux || darwin

package pgserver

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// watchdog is a small shell process that outlives this one by a moment: when its
// input ends, because this process ended in whatever way, it ends the server and
// removes the temporary folder. A parent-death signal would do neither portably:
// it is Linux's alone, it is bound to the thread that started the server rather
// than to the process, and it leaves the folder.
type watchdog struct {
	in  io.WriteCloser
	pid int
}

// serverScript reads the process to guard, one number a line, 0 for none. "bye"
// sends it away. $1 is the server's pid file, which goes when the server has ended
// (the process itself may stay as a zombie where nobody reaps orphans); $2 is the
// folder to remove, or nothing.
const serverScript = `
trap '' HUP INT TERM
pid=0
while read -r line; do
	if [ "$line" = bye ]; then exit 0; fi
	pid=$line
done
if [ "$pid" != 0 ]; then
	kill -QUIT "$pid"
	tries=0
	while [ -e "$1" ] && kill -0 "$pid" && [ $tries -lt 100 ]; do
		sleep 0.05
		tries=$((tries + 1))
	done
	if [ -e "$1" ]; then kill -KILL "$pid"; fi
fi
if [ -n "$2" ]; then rm -rf -- "$2"; fi
`

// watch starts a watchdog that follows a script.
func watch(script string, args ...string) (*watchdog, error) {
	cmd := exec.Command("/bin/sh", append([]string{"-c", script, "postrider-pgserver-watchdog"}, args...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return &watchdog{in, cmd.Process.Pid}, nil
}

// guard tells which process to end, 0 for none.
func (w *watchdog) guard(pid int) {
	if w != nil {
		_, _ = io.WriteString(w.in, strconv.Itoa(pid)+"\n")
	}
}

// dismiss ends the watchdog with nothing done.
func (w *watchdog) dismiss() {
	_, _ = io.WriteString(w.in, "bye\n")
	_ = w.in.Close()
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(w.pid, &status, 0, nil); err != syscall.EINTR {
			return
		}
	}
}
