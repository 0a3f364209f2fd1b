//go:build linux || darwin

package pgserver

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childEnv makes this test binary the process that starts a server and is killed.
const childEnv = "PGSERVER_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir, ok := os.LookupEnv(childEnv); ok {
		s, err := Start(context.Background(), Options{Dir: dir})
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println(s.PID(), s.Dir())
		select {}
	}
	if dir, ok := os.LookupEnv(engineEnv); ok {
		if err := standIn(dir, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(125)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// startAndDie starts a server in a process of its own and kills that process.
func startAndDie(t *testing.T, dir string) (pid int, used string) {
	t.Helper()
	cmd := exec.CommandContext(deadline(t), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err == nil {
		_, err = fmt.Sscan(line, &pid, &used)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return pid, used
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func TestServerDiesWithItsProcess(t *testing.T) {
	pid, dir := startAndDie(t, "")
	await(t, "the server ends", func() bool { return syscall.Kill(pid, 0) != nil || isZombie(pid) })
	await(t, "the folder goes", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
}

// The next process takes over a kept folder although the last one was killed a
// moment ago and its server is only just ending.
func TestKeptFolderAfterAKill(t *testing.T) {
	dir := t.TempDir() + "/kept"
	for range 2 {
		pid, _ := startAndDie(t, dir)
		s, err := Start(deadline(t), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if s.PID() == pid || strings.Contains(s.LogTail(), "lock file") {
			t.Errorf("the server got in the other's way:\n%s", s.LogTail())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
