package orders

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/test/internal/programs"
)

// table reads the table that the demo prints.
func (o outcome) table(t testing.TB) map[string]int {
	t.Helper()
	rows := make(map[string]int)
	for _, row := range regexp.MustCompile(`(?m)^  (orders|fulfilments|mails|analytics|indexed|missing|wrong|duplicates) +(\d+)\b`).FindAllStringSubmatch(o.stdout, -1) {
		n, err := strconv.Atoi(row[2])
		if err != nil {
			t.Fatal(err)
		}
		rows[row[1]] = n
	}
	if len(rows) != 8 && len(rows) != 5 {
		t.Fatalf("exit code %d and no table\n%s%s", o.code, o.stdout, o.stderr)
	}
	return rows
}

// expect checks that the demo ended well, with n orders in all, in each service.
func (o outcome) expect(t testing.TB, n int) {
	t.Helper()
	rows := o.table(t)
	well := o.code == 0 && rows["missing"]+rows["wrong"]+rows["duplicates"] == 0
	for name, value := range rows {
		if name != "missing" && name != "wrong" && name != "duplicates" && value != n {
			well = false
		}
	}
	if !well {
		t.Errorf("exit code %d, want %d orders\n%s%s", o.code, n, o.stdout, o.stderr)
	}
}

var delays = regexp.MustCompile(`commit to (\w+) +p50 \d+\.\d ms, p99 \d+\.\d ms`)

func TestDemo(t *testing.T) {
	orders := testsize.Pick(50, 200)
	env := environment(t)
	for name, args := range map[string][]string{
		"SQLite":          nil,
		"plain":           {"--plain"},
		"PostgreSQL":      {"--postgres", pgtest.Database(t)},
		"PostgreSQL auto": {"--postgres", "auto"},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, env, "orders", append([]string{"demo", "--orders", strconv.Itoa(orders), "--exit"}, args...)...)
			got.expect(t, orders)
			services := 4
			if name == "plain" {
				services = 1
			}
			if n := len(delays.FindAllString(got.stdout, -1)); n != services || len(got.table(t)) != services+4 {
				t.Errorf("delays of %d services in\n%s", n, got.stdout)
			}
			if got.stderr != "" {
				t.Errorf("complaints:\n%s", got.stderr)
			}
		})
	}
}

func TestDemoLeavesNothingBehind(t *testing.T) {
	temporary := t.TempDir()
	run(t, environment(t, "TMPDIR="+temporary), "orders", "demo", "--orders", "5", "--exit").expect(t, 5)
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestDemoKeepsAndContinues(t *testing.T) {
	for name, args := range map[string][]string{
		"SQLite":     nil,
		"PostgreSQL": {"--postgres", "auto"},
	} {
		t.Run(name, func(t *testing.T) {
			env, dir := environment(t), keepDir(t)
			demo := func(more ...string) []string {
				return append(append([]string{"demo", "--keep", dir}, args...), more...)
			}
			run(t, env, "orders", demo("--orders", "20", "--exit")...).expect(t, 20)
			run(t, env, "orders", demo("--orders", "10", "--exit")...).expect(t, 30)

			// Without --exit it goes on until it is stopped, and serves meanwhile.
			running := programs.Start(t, env, "orders", demo("--addr", "127.0.0.1:0")...)
			s := &shop{t: t, url: running.Said("  orders        ")}
			running.Said("Ctrl-C")
			o := s.post(valid).order(t)
			running.Said("order " + o.ID)
			second := run(t, env, "orders", demo("--exit")...)
			if second.code != 2 {
				t.Errorf("a second demo on the same folder: exit code %d\n%s", second.code, second.stderr)
			}
			running.End(syscall.SIGINT)
			if code := running.Code(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			run(t, env, "orders", demo("--exit")...).expect(t, 31)
		})
	}
}

// Stopped in the middle of its work, the demo keeps what was not done yet for
// the next run.
func TestDemoStoppedHalfWay(t *testing.T) {
	env, dir := environment(t), keepDir(t)
	running := programs.Start(t, env, "orders", "demo", "--keep", dir, "--addr", "127.0.0.1:0", "--orders", "100000")
	running.Said("after its commit")
	running.Stop()
	got := run(t, env, "orders", "demo", "--keep", dir, "--exit")
	rows := got.table(t)
	if rows["orders"] == 0 {
		t.Errorf("no orders\n%s", got.stdout)
	}
	got.expect(t, rows["orders"])
}

// An emulated AWS that lost its data makes the demo say what is missing.
func TestDemoSaysWhatIsMissing(t *testing.T) {
	env, dir := environment(t), keepDir(t)
	run(t, env, "orders", "demo", "--keep", dir, "--orders", "15", "--exit").expect(t, 15)
	for _, file := range []string{"sqs.json", "dynamodb.json"} {
		if err := os.Remove(filepath.Join(dir, "sqlite", "aws", file)); err != nil {
			t.Fatal(err)
		}
	}
	got := run(t, env, "orders", "demo", "--keep", dir, "--exit", "--patience", "1s")
	rows := got.table(t)
	if got.code != 1 || rows["orders"] != 15 || rows["missing"] != 15 {
		t.Errorf("exit code %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	if !regexp.MustCompile(`15 orders are missing in fulfilment:\n  [0-9a-f-]{36}\n`).MatchString(got.stderr) {
		t.Errorf("it does not name the orders:\n%s", got.stderr)
	}
}

// keepDir is a folder that a PostgreSQL server of another user can reach.
func keepDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "orders-keep-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
