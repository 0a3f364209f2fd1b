package cli_test

import (
	"net"
	"strings"
	"testing"
)

const canary = "c4n4ry"

func TestVersion(t *testing.T) {
	p := world{}.run(t, "version")
	p.wantExit(0)
	if got := p.stdout.String(); !strings.HasPrefix(got, "postrider v9.8.7-test commit abc123") || strings.Count(got, "\n") != 1 {
		t.Errorf("got %q", got)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"relay", "--help"}, {"migrate", "--help"}, {"migrate", "up", "--help"}, {"migrate", "print", "-h"}} {
		p := world{env: []string{
			"POSTRIDER_DATABASE=postgres://shop:" + canary + "@h/x", "POSTRIDER_DB=" + canary, "DATABASE_URL=" + canary, "PGPASSWORD=" + canary, "POSTRIDER_TO=" + canary,
		}}.run(t, args...)
		p.wantExit(0)
		out := p.stdout.String()
		if !strings.Contains(out, "Usage: postrider") || p.stderr.String() != "" {
			t.Errorf("%v: %s%s", args, out, p.stderr.String())
		}
		if strings.Contains(out, canary) {
			t.Errorf("%v: the help shows what a variable holds", args)
		}
		for line := range strings.Lines(out) {
			if len(line) > 101 {
				t.Errorf("%v: a line of %d characters: %s", args, len(line), line)
			}
		}
	}
}

func TestWrongCommandLine(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"relya"}, `did you mean "relay"?`},
		{[]string{"relay", "--dbx", "x"}, "unknown flag --dbx"},
		{[]string{"relay", "postgres://shop:" + canary + "@h/x"}, "postrider relay --help"},
		{[]string{"migrate"}, "postrider migrate --help"},
		{[]string{"migrate", "up", "--shards", "many", "--db", "sqlite:x"}, "--shards"},
		{[]string{"migrate", "up", "--shards", "65", "--db", "sqlite:x"}, "1 to 64"},
		{[]string{"migrate", "print", "--shards", "-1"}, "--shards"},
		{[]string{"migrate", "up", "--shards", "0", "--db", "sqlite:x"}, "1 to 64"},
	} {
		p := world{}.run(t, tc.args...)
		p.wantExit(2, tc.want)
		if strings.Contains(p.stderr.String()+p.stdout.String(), canary) {
			t.Errorf("%v: shows the password", tc.args)
		}
	}
}

func TestEveryProblemWithItsLine(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "postrider.yaml", `database: postgres://shop:`+canary+`/x@db/orders
lease: 15
source: wal
retain: {sent: 24h}
routes:
  - name: orders
    topics: [orders]
    to: sqs:/orders
  - name: orders
    topics: ["billing.*"]
    to: ${QUEUE}
    max_attempts: 3
`)
	p := world{dir: dir, env: []string{"POSTRIDER_HTTP=localhost"}}.run(t, "relay", "--log-format", "yaml")
	p.wantExit(2,
		"10 problems with the settings",
		"\n  postrider.yaml:1:11: database: is not a valid PostgreSQL URL; ",
		"\n  postrider.yaml:2:8: lease: \"15\" has no unit; write 15s",
		"\n  postrider.yaml:3:9: source: ",
		"\n  postrider.yaml:4:1: unknown setting \"retain\"; ",
		"\n  postrider.yaml:8:9: routes[0].to: ",
		"\n  postrider.yaml:9:11: routes[1].name: ",
		"\n  postrider.yaml:11:9: routes[1].to: the variable QUEUE is not set; ",
		"\n  postrider.yaml:12:5: routes[1]: unknown setting \"max_attempts\"; ",
		"\n  POSTRIDER_HTTP: ",
		"\n  --log-format: ",
	)
	if strings.Contains(p.stderr.String(), canary) {
		t.Error("shows the password")
	}
	if p.stdout.String() != "" {
		t.Error("problems belong to stderr")
	}
}

func TestWALIsRefusedUntilItExists(t *testing.T) {
	world{}.run(t, "relay", "--db", "sqlite:x.db", "--to", "sqs://orders", "--source", "wal").
		wantExit(2, "--source: ", "cannot read the write-ahead log", "use auto or poll")
}

func TestNothingIsNamed(t *testing.T) {
	world{}.run(t, "relay").wantExit(2, "no database is named", "no route is named")
	world{}.run(t, "migrate", "status").wantExit(2, "no database is named")
	p := world{}.run(t, "relay", "--config", "gone.yaml")
	p.wantExit(2, `--config: "gone.yaml"`)
	if strings.Contains(p.stderr.String(), "no database") {
		t.Error("nobody knows what the file would have said")
	}
	world{env: []string{"AWS_REGION="}}.run(t, "relay", "--db", "sqlite:x.db", "--to", "sqs://orders").wantExit(2, "AWS_REGION")
}

// Nothing listens on a port that was just given back, or not for us.
func unreachable(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestCannotConnect(t *testing.T) {
	db := "postgres://shop:" + canary + "@" + unreachable(t) + "/orders?sslmode=disable"
	dir := t.TempDir()
	file := write(t, dir, "url", db)
	for _, args := range [][]string{
		{"relay", "--db", db, "--to", "sqs://orders", "--http", "off"},
		{"relay", "--db", db, "--to", "sqs://orders", "--http", "off", "--log-format", "json"},
		{"relay", "--db-file", file, "--to", "sqs://orders", "--http", "off", "--log-level", "debug"},
		{"migrate", "up", "--db", db},
		{"migrate", "status", "--db", db},
	} {
		p := world{}.run(t, args...)
		p.wantExit(3, "cannot connect to the database", "refused", "--db-file")
		if strings.Contains(p.stderr.String()+p.stdout.String(), canary) {
			t.Errorf("%v: shows the password", args)
		}
	}
}

func TestATakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	world{}.run(t, "relay", "--db", "postgres://"+unreachable(t)+"/x", "--to", "sqs://orders", "--http", l.Addr().String()).
		wantExit(2, "cannot listen on "+l.Addr().String(), "--http off")
	// The default address: whether we get it or somebody else has it, it is taken.
	if d, err := net.Listen("tcp", "127.0.0.1:8080"); err == nil {
		defer d.Close()
	}
	world{}.run(t, "relay", "--db", "postgres://"+unreachable(t)+"/x", "--to", "sqs://orders").
		wantExit(3, "level=WARN", "the default address is taken", "cannot connect")
}
