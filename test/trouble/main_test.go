// Package trouble takes the database away from a running relay in every way
// there is, and holds the relay to what docs/promises.md says: the built
// postrider program, real servers of PostgreSQL 15 and 18, and an AWS emulator.
package trouble

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/postrider/postrider/internal/pgserver"
	"github.com/postrider/postrider/test/internal/programs"
)

func TestMain(m *testing.M) {
	// Mostly these tests wait, so more of them fit than there are processors.
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(atOnce, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	os.Exit(programs.Main(m, programs.Postrider))
}

// atOnce is how many of the worlds live at a time.
const atOnce = 6

// everyVersion runs a test beside the others, on the machine's PostgreSQL and
// on PostgreSQL 18.
func everyVersion(t *testing.T, test func(t *testing.T, version string)) {
	t.Parallel()
	for _, v := range []struct{ name, version string }{{"PostgreSQL of the machine", ""}, {"PostgreSQL 18", pgserver.Version18}} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			test(t, v.version)
		})
	}
}
