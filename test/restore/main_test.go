// Package restore restores the database as operators do, from dumps, base
// backups and by pg_upgrade, and has real relays go on with it: nothing is lost,
// and nothing is sent again that was recorded as sent.
package restore

import (
	"os"
	"testing"

	"github.com/postrider/postrider/test/internal/programs"
)

func TestMain(m *testing.M) { os.Exit(programs.Main(m, programs.Postrider)) }
