// Package pooler tries the postrider program and the Writer where a pooler stands
// before PostgreSQL, where the role, the server or the clocks are set in odd ways,
// and where several relays of other schemas run beside.
package pooler

import (
	"os"
	"testing"

	"github.com/postrider/postrider/test/internal/programs"
)

func TestMain(m *testing.M) { os.Exit(programs.Main(m, programs.Postrider)) }
