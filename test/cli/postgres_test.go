package cli_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/pgtest"
)

func TestMigratePostgres(t *testing.T) {
	db := pgtest.Database(t)
	status := world{}.run(t, "migrate", "status", "--db", db)
	status.wantExit(1)
	if out := status.stdout.String(); !strings.Contains(out, "missing   0001_") || !strings.Contains(out, "run       postrider migrate up") {
		t.Errorf("status: %s", out)
	}
	world{}.run(t, "relay", "--db", db, "--to", "sqs://orders", "--http", "off").wantExit(2, "tables are missing", "postrider migrate up")

	up := world{}.run(t, "migrate", "up", "--db", db, "--shards", "2")
	up.wantExit(0)
	if !strings.Contains(up.stdout.String(), "applied 0001_") {
		t.Errorf("up: %s", up.stdout.String())
	}
	again := world{}.run(t, "migrate", "up", "--db", db)
	again.wantExit(0)
	if !strings.Contains(again.stdout.String(), "nothing to do") {
		t.Errorf("second up: %s", again.stdout.String())
	}
	world{}.run(t, "migrate", "up", "--db", db, "--shards", "3").wantExit(2, "has 2 shards")

	status = world{}.run(t, "migrate", "status", "--db", db)
	status.wantExit(0)
	if out := status.stdout.String(); !strings.Contains(out, "shards    2\n") || !strings.Contains(out, "missing   nothing") {
		t.Errorf("status: %s", out)
	}
	if u, _ := url.Parse(db); u.User != nil {
		if password, ok := u.User.Password(); ok && strings.Contains(status.stdout.String(), password) {
			t.Error("status shows the password")
		}
	}
	world{}.run(t, "migrate", "status", "--db", db, "--schema", "Other Schema").wantExit(1)
}

func TestMigratePrintPostgres(t *testing.T) {
	print := world{}.run(t, "migrate", "print", "--schema", "Out Box", "--shards", "3")
	print.wantExit(0)
	db := pgtest.Database(t)
	execute(t, db, print.stdout.String())
	status := world{}.run(t, "migrate", "status", "--db", db, "--schema", "Out Box")
	status.wantExit(0)
	if out := status.stdout.String(); !strings.Contains(out, "shards    3\n") || !strings.Contains(out, "schema    Out Box\n") {
		t.Errorf("status: %s", out)
	}
}

func TestNewerTablesAreRefused(t *testing.T) {
	db := pgtest.Database(t)
	world{}.run(t, "migrate", "up", "--db", db).wantExit(0)
	execute(t, db, "UPDATE postrider.meta SET value = '999' WHERE name = 'version'")
	for _, args := range [][]string{{"relay", "--to", "sqs://x", "--http", "off"}, {"migrate", "up"}, {"migrate", "status"}} {
		world{}.run(t, append(args, "--db", db)...).wantExit(2, "later version")
	}
}

func TestRefusedCredentials(t *testing.T) {
	u, err := url.Parse(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("nobody_of_that_name", canary)
	p := world{}.run(t, "migrate", "status", "--db", u.String())
	p.wantExit(3, "cannot connect", "nobody_of_that_name")
	if strings.Contains(p.stderr.String(), canary) {
		t.Error("shows the password")
	}
}

func execute(t *testing.T, db, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}
