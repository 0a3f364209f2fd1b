// Package e2e holds the product to its promises from end to end: the built
// postrider and orders programs, a real PostgreSQL, and an AWS emulator behind a
// proxy that fails on demand. What the queue took, and in which order, is
// written down between the proxy and the emulator.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// programs is the folder with the built programs.
var programs string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "postrider-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		programs = dir
		args := append([]string{"build", "-buildvcs=false", "-o", dir}, buildFlags...)
		args = append(args, "github.com/postrider/postrider/cmd/postrider", "github.com/postrider/postrider/examples/orders")
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the programs: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}
