package pooler

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// role makes one with a name of the test's own, which ends with the test; {role}
// in the statements that follow is its name.
func role(t testing.TB, owner *pgxpool.Pool, attributes string, statements ...string) (name string) {
	t.Helper()
	if err := owner.QueryRow(t.Context(), `SELECT current_database() || '_role'`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	execute(t, owner, `CREATE ROLE `+name+` `+attributes)
	t.Cleanup(func() { execute(t, owner, `DROP OWNED BY `+name, `DROP ROLE `+name) })
	for _, s := range statements {
		execute(t, owner, strings.ReplaceAll(s, "{role}", name))
	}
	return name
}

// as is the database's URL for a role whose password is the canary.
func as(t testing.TB, db, role string) string {
	t.Helper()
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, canary)
	return u.String()
}

// findLibrary looks where Debian puts libraries.
func findLibrary(name string) string {
	found, _ := filepath.Glob("/usr/lib/*/" + name)
	if len(found) == 0 {
		return ""
	}
	return found[0]
}
