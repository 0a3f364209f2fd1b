// Package programs builds the project's programs and runs them as an operator
// does, for tests.
package programs

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The programs.
const (
	Orders    = "orders"
	Postrider = "postrider"
)

var sources = map[string]string{
	Orders:    "github.com/postrider/postrider/examples/orders",
	Postrider: "github.com/postrider/postrider/cmd/postrider",
}

// Patience bounds every wait for something that must happen. It promises no
// speed.
const Patience = 2 * time.Minute

// folder has the built programs.
var folder string

// Main builds the programs that are named, with the race detector if the tests
// have it, runs the tests, and returns the exit code. It is for TestMain.
func Main(m *testing.M, names ...string) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "programs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	folder = dir
	args := append([]string{"build", "-buildvcs=false", "-o", dir + string(filepath.Separator)}, buildFlags...)
	for _, name := range names {
		args = append(args, sources[name])
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build %s: %v\n%s", strings.Join(names, " and "), err, out)
		return 1
	}
	return m.Run()
}

// Environment of a program: the test's own without what speaks of AWS or of our
// settings, plus extra, as NAME=value.
func Environment(t testing.TB, extra ...string) []string {
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
	env = append(env, "AWS_CONFIG_FILE="+none, "AWS_SHARED_CREDENTIALS_FILE="+none, "AWS_EC2_METADATA_DISABLED=true",
		"GORACE=halt_on_error=1 exitcode=66")
	return append(env, extra...)
}

// Path is where the built program is.
func Path(name string) string { return filepath.Join(folder, name) }

func command(t testing.TB, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(Path(name), args...)
	cmd.Dir, cmd.Env = t.TempDir(), env
	return cmd
}

// Run runs a program to its end.
func Run(t testing.TB, env []string, name string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := command(t, env, name, args...)
	var out, said Output
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(Patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait() // the exit code tells
	return cmd.ProcessState.ExitCode(), out.String(), said.String()
}
