package pooler

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/test/internal/programs"
)

const canary = "c4n4ry"

// Migrations go past the pooler where there is a direct connection, which must
// lead to the same database, and to that without a pooler.
func TestMigrateByTheDirectConnection(t *testing.T) {
	t.Parallel()
	direct, owner := database(t)
	// The pooler's role may connect, and may not make a schema.
	name := role(t, owner, "LOGIN PASSWORD '"+canary+"'")
	b := newBouncer(t, as(t, direct, name))
	p := &post{t: t, db: b.url(), schema: "postrider", env: programs.Environment(t)}
	fails := func(code int, want string, args ...string) {
		t.Helper()
		got, _, stderr := p.try(append([]string{"migrate", "up"}, args...)...)
		if got != code || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, want %d and %q: %s", args, got, code, want, stderr)
		}
		if password, _ := b.server.User.Password(); strings.Contains(stderr, password) || strings.Contains(stderr, canary) {
			t.Errorf("it shows a password: %s", stderr)
		}
	}
	fails(1, "permission denied")
	fails(2, "is not the database that --db names", "--direct-database", pgtest.Database(t))
	// Servers that are copies of each other say the same of themselves.
	fails(2, "is not the database that --db names", "--direct-database", pgtest.Server(t).URL("postgres"))
	fails(2, "goes through a pooler, too", "--direct-database", newBouncer(t, direct).url())
	fails(2, "is for PostgreSQL alone", "--direct-database", "sqlite:x")
	fails(3, "cannot connect", "--direct-database", "postgres://owner:"+canary+"@127.0.0.1:1/"+name)
	if got := p.run("migrate", "up", "--direct-database", direct); !strings.Contains(got, "applied 0001") {
		t.Errorf("migrate up: %s", got)
	}
	execute(t, owner, `GRANT USAGE ON SCHEMA postrider TO `+name, `GRANT SELECT ON ALL TABLES IN SCHEMA postrider TO `+name)
	p.env = append(p.env, "POSTRIDER_DIRECT_DATABASE="+direct)
	if got := p.run("migrate", "up"); !strings.Contains(got, "nothing to do") {
		t.Errorf("migrate up: %s", got)
	}
	if got := p.run("migrate", "status"); !strings.Contains(got, "missing   nothing") || strings.Contains(got, canary) {
		t.Errorf("migrate status: %s", got)
	}
}
