// Package services tests the services that react to orders as they run: the
// built program, queues of an emulated SQS behind a proxy that fails on demand,
// and a mail server that catches what is sent.
package services

import (
	"os"
	"testing"

	"github.com/postrider/postrider/test/internal/programs"
)

func TestMain(m *testing.M) { os.Exit(programs.Main(m, programs.Orders, programs.Postrider)) }

// process is one of the programs at work.
type process struct {
	t testing.TB
	*programs.Process
}

// eventually waits until check returns nil.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	programs.Eventually(t, what, nil, check)
}

// run runs `orders` to its end.
func run(t testing.TB, env []string, args ...string) (code int, said string) {
	t.Helper()
	code, stdout, stderr := programs.Run(t, env, programs.Orders, args...)
	return code, stdout + stderr
}
