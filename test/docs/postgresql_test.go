package docs

import (
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/store/pgstore"
)

const postgresql = "../../docs/postgresql.md"

// The document shows what `postrider migrate print --roles` prints. (What the roles
// can do is tried in test/roles.)
func TestDocumentedRolesAreThoseOfTheCommand(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "postrider")
	if out, err := osexec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../cmd/postrider").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	command := osexec.CommandContext(t.Context(), bin, "migrate", "print", "--roles")
	command.Dir = t.TempDir() // without a file of settings
	printed, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(blocksOf(t, postgresql, "sql"), string(printed)) {
		t.Errorf("%s does not show what the command prints:\n%s", postgresql, printed)
	}
}

// The other SQL of the document runs.
func TestDocumentedSQLRuns(t *testing.T) {
	pool := connect(t, pgtest.Database(t))
	if _, err := pgstore.Migrate(t.Context(), pool, pgstore.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, sql := range blocksOf(t, postgresql, "sql") {
		if !strings.Contains(sql, "CREATE ROLE") { // roles are the whole server's
			exec(t, pool, sql)
		}
	}
}
