//go:build linux || darwin

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// engineEnv makes this test binary a stand-in for docker: its only container is a
// server of this machine, in the folder that the variable names.
const engineEnv = "PGSERVER_TEST_ENGINE"

func standIn(dir string, args []string) error {
	note := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(dir, name))
		return string(text)
	}
	pid, _ := strconv.Atoi(note("pid"))
	alive := func() bool { return pid != 0 && syscall.Kill(pid, 0) == nil && !isZombie(pid) }
	launch := func(port int, password string) error {
		s := &Server{port: port, settings: map[string]string{}}
		if err := s.create(context.Background(), Options{Dir: filepath.Join(dir, "server")}); err != nil {
			return err
		}
		if password != "" {
			// A statement without an answer, which ask takes for an error.
			if _, err := s.ask(context.Background(), "ALTER ROLE postgres PASSWORD '"+password+"'"); !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			if err := os.WriteFile(filepath.Join(s.dir, passwordName), []byte(password), 0o600); err != nil {
				return err
			}
		}
		s.watchdog.dismiss()
		return os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(s.PID())), 0o600)
	}
	switch args[0] {
	case "info":
		fmt.Println("stand-in")
	case "run":
		if note("run") == "" { // the first time its port is taken
			fmt.Println("refused")
			return errors.Join(errors.New("port is already allocated"),
				os.WriteFile(filepath.Join(dir, "run"), []byte("once"), 0o600))
		}
		if note("removed") != "refused" {
			return fmt.Errorf("the container that did not start was not removed")
		}
		published := strings.Split(args[slices.Index(args, "--publish")+1], ":")
		port, err := strconv.Atoi(published[1])
		if err != nil || published[0] != "127.0.0.1" || published[2] != "5432" {
			return fmt.Errorf("published as %q", published)
		}
		password := strings.TrimPrefix(args[slices.Index(args, "--env")+1], "POSTGRES_PASSWORD=")
		fmt.Println("Pulling …")
		fmt.Println("c0ffee")
		if err := os.WriteFile(filepath.Join(dir, "port"), []byte(published[1]), 0o600); err != nil {
			return err
		}
		return launch(port, password)
	case "start":
		port, _ := strconv.Atoi(note("port"))
		return launch(port, "")
	case "inspect":
		fmt.Println(alive())
	case "kill":
		sig, err := strconv.Atoi(args[2])
		if err != nil || args[3] != "c0ffee" {
			return fmt.Errorf("kill %q", args)
		}
		if syscall.Signal(sig) == syscall.SIGKILL {
			killTree(pid)
			return nil
		}
		return syscall.Kill(pid, syscall.Signal(sig))
	case "wait":
		for alive() {
			time.Sleep(time.Millisecond)
		}
	case "logs":
		fmt.Println(note("server/server.log"))
	case "rm":
		if alive() {
			killTree(pid)
		}
		return os.WriteFile(filepath.Join(dir, "removed"), []byte(args[len(args)-1]), 0o600)
	default:
		return fmt.Errorf("unknown command %q", args)
	}
	return nil
}

// No container engine runs where this is tested as a rule; a stand-in shows that
// the steps fit together.
func TestContainer(t *testing.T) {
	dir := t.TempDir()
	engine := "#!/bin/sh\n" + engineEnv + "='" + dir + "' exec '" + os.Args[0] + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(engine), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))

	s := &Server{settings: defaults}
	if err := s.startContainer(deadline(t)); err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if !closed {
			_ = s.Close()
		}
	}()
	url := s.URL("postgres")
	ask(t, s, "CREATE TABLE kept (word text)")
	for name, end := range map[string]func() error{
		"Stop": func() error { return s.Stop(deadline(t)) },
		"Kill": s.Kill,
	} {
		for range 2 { // the second time it is stopped already
			if err := end(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if _, err := s.ask(t.Context(), "SHOW port"); err == nil {
			t.Errorf("after %s the server answers", name)
		}
		if err := s.Restart(deadline(t)); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
		if got := ask(t, s, "SELECT count(*)::text FROM kept"); got != "0" || s.URL("postgres") != url {
			t.Errorf("after %s: %q rows at %s", name, got, s.URL("postgres"))
		}
	}
	if !strings.Contains(s.LogTail(), "ready to accept connections") {
		t.Errorf("the log ends %q", s.LogTail())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	closed = true
	if removed, _ := os.ReadFile(filepath.Join(dir, "removed")); string(removed) != "c0ffee" {
		t.Errorf("removed %q", removed)
	}
}
