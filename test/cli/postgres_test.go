package cli_test

import (
	"context"
	"net"
	"net/url"
	"strings"
	"syscall"
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
	execute(t, db, "UPDATE postrider.meta SET value = '999' WHERE name IN ('version', 'compatible_from')")
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

// The password may come from a variable, a password file, or the file that
// holds the URL.
func TestPasswordOutsideTheURL(t *testing.T) {
	db := pgtest.Database(t)
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	password, ok := u.User.Password()
	if !ok {
		t.Skip("the server takes no password")
	}
	user := u.User.Username()
	u.User = url.User(user)
	bare, dir := u.String(), t.TempDir()
	world{}.run(t, "migrate", "status", "--db", bare).wantExit(3, "password")
	passfile := write(t, dir, "pgpass", "*:*:*:"+user+":"+password+"\n")
	for name, w := range map[string]world{
		"PGPASSWORD":            {env: []string{"POSTRIDER_DB=" + bare, "PGPASSWORD=" + password}},
		"password file":         {env: []string{"POSTRIDER_DB=" + bare, "PGPASSFILE=" + passfile}},
		"POSTRIDER_DB_FILE":     {env: []string{"POSTRIDER_DB_FILE=" + write(t, dir, "url", db+"\n")}},
		"substituted in a file": {env: []string{"POSTRIDER_CONFIG=" + write(t, dir, "p.yaml", "database: ${DATABASE_URL}\n"), "DATABASE_URL=" + db}},
	} {
		p := w.run(t, "migrate", "status", "--log-level", "debug")
		if p.wait() != 1 || !strings.Contains(p.stdout.String(), "missing   0001") {
			t.Errorf("%s: exit %d: %s", name, p.code, p.stderr.String())
		}
		if strings.Contains(p.stdout.String()+p.stderr.String(), password) {
			t.Errorf("%s: shows the password", name)
		}
	}
}

// A database that never answers: a deadline ends the wait, and so does a signal.
func TestADatabaseThatNeverAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connected := make(chan net.Conn, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connected <- conn
		}
	}()
	db := "postgres://shop:" + canary + "@" + l.Addr().String() + "/orders?sslmode=disable"
	world{}.run(t, "migrate", "status", "--db", db+"&connect_timeout=1").wantExit(3, "cannot connect", "timeout")
	(<-connected).Close()

	p := world{}.start(t, "relay", "--db", db, "--to", "sqs://orders", "--http", "off")
	conn := <-connected
	defer conn.Close()
	p.signal(syscall.SIGTERM)
	p.wantExit(0, "stopping")
}
