// Package e2e holds the product to its promises from end to end: the built
// postrider and orders programs, a real PostgreSQL, and an AWS emulator behind a
// proxy that fails on demand. What the queue took, and in which order, is
// written down between the proxy and the emulator.
package e2e

import (
	"os"
	"testing"

	"github.com/postrider/postrider/test/internal/programs"
)

func TestMain(m *testing.M) { os.Exit(programs.Main(m, programs.Orders, programs.Postrider)) }
