// Command with runs another command beside one PostgreSQL server for tests:
//
//	go run ./internal/pgtest/with -- go test ./...
//
// The command finds the server's URL in POSTRIDER_TEST_POSTGRES, and its exit code
// becomes this one's. A URL that is given already is used as it is, and no server
// is started. POSTRIDER_TEST_PG_VERSION=18 makes it a server of PostgreSQL 18.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/postrider/postrider/internal/pgserver"
)

// env is the variable that package pgtest reads; see there.
const env = "POSTRIDER_TEST_POSTGRES"

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: with -- COMMAND [ARGUMENT ...]")
		os.Exit(2)
	}
	code, err := run(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "with:", err)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	// The terminal gives Ctrl-C to the command as well; it decides when to end.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if os.Getenv(env) == "" {
		s, startErr := pgserver.Start(ctx, pgserver.Options{Version: pgserver.VersionForTests(), Settings: pgserver.ForTests()})
		if startErr != nil {
			return 1, startErr
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		if err := os.Setenv(env, s.URL("postgres")); err != nil {
			return 1, err
		}
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if code := exit.ExitCode(); code > 0 {
			return code, nil
		}
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}
