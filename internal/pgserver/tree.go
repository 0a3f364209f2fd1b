//go:build linux || darwin

package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const pidFileName = "postmaster.pid"

// reaped reports whether a child of this process is gone, and takes its status.
func reaped(pid int) bool {
	var status syscall.WaitStatus
	got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
	return got == pid || err == syscall.ECHILD
}

// killTree kills a postmaster and its processes and waits until they are gone.
// The postmaster is halted first, or it would start new ones while the old ones
// die, and every process of the server would see an orderly crash.
func killTree(pid int) {
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	children := childrenOf(pid)
	shared := sharedMemoryFiles(append(children, pid))
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for _, child := range children {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	for !reaped(pid) {
		time.Sleep(time.Millisecond)
	}
	// Somebody else reaps the children, init as a rule. They may stay as zombies
	// where nobody does, so there is an end to the waiting.
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		alive := false
		for _, child := range children {
			alive = alive || syscall.Kill(child, 0) == nil && !isZombie(child)
		}
		if !alive {
			break
		}
	}
	for _, path := range shared {
		_ = os.Remove(path)
	}
}

// childrenOf lists the processes that a process has started and that still run.
func childrenOf(parent int) []int {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if stats, _ := filepath.Glob("/proc/[0-9]*/stat"); len(stats) > 0 {
		var children []int
		for _, path := range stats {
			text, err := os.ReadFile(path)
			if err != nil {
				continue
			}
			// pid (name) state ppid …; the name may hold anything.
			after := bytes.LastIndexByte(text, ')')
			fields := bytes.Fields(text[after+1:])
			if len(fields) > 1 && string(fields[1]) == strconv.Itoa(parent) {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
				children = append(children, pid)
			}
		}
		return children
	}
	if err != nil {
		return nil
	}
	var children []int
	for line := range strings.Lines(string(out)) {
		var pid, ppid int
		if n, _ := fmt.Sscan(line, &pid, &ppid); n == 2 && ppid == parent {
			children = append(children, pid)
		}
	}
	return children
}

func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	return len(fields) > 0 && string(fields[0]) == "Z"
}

// sharedMemoryFiles lists the POSIX shared memory of the server's processes, which
// nobody removes after a SIGKILL.
func sharedMemoryFiles(pids []int) []string {
	var files []string
	for _, pid := range pids {
		maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		for line := range bytes.Lines(maps) {
			if at := bytes.Index(line, []byte("/dev/shm/PostgreSQL.")); at >= 0 {
				files = append(files, string(bytes.TrimSpace(line[at:])))
			}
		}
	}
	return files
}

// clearSharedMemory removes what a killed server leaves behind and a next one
// could stumble over: its System V segment, named in the pid file, and that file.
// It must only be called once no process of the server is left.
func clearSharedMemory(pidFile string) {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return
	}
	// Line 7: key and id of the segment.
	if lines := strings.Split(string(text), "\n"); len(lines) >= 7 {
		if fields := strings.Fields(lines[6]); len(fields) == 2 {
			if id, err := strconv.Atoi(fields[1]); err == nil {
				_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
			}
		}
	}
	_ = os.Remove(pidFile)
}

// postmasterOf returns the process that runs on a data folder, or 0. A pid file
// alone says little: after a crash its number may be anybody's.
func postmasterOf(data string) int {
	text, err := os.ReadFile(filepath.Join(data, pidFileName))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid <= 0 || syscall.Kill(pid, 0) == syscall.ESRCH {
		return 0
	}
	// A postmaster works in its data folder. One that may not be looked at belongs
	// to another user, so it is none of ours.
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err == nil && !samePath(cwd, data) || errors.Is(err, os.ErrPermission) {
		return 0
	}
	return pid
}

// leftover clears the way for a server on a cluster that an earlier process used:
// that process's watchdog may still be ending its server, and a crash may have
// left a pid file.
func (s *Server) leftover(ctx context.Context) error {
	for deadline := time.Now().Add(15 * time.Second); ; {
		pid := postmasterOf(s.data())
		if pid == 0 {
			// The server would take a number that is somebody's by now for its own.
			if err := os.Remove(s.pidFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			return nil
		}
		if time.Now().After(deadline) || !pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("process %d runs a server on %s", pid, s.data())
		}
	}
}
