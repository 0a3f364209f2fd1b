package restore

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/test/internal/awsrig"
	"github.com/postrider/postrider/test/internal/programs"
)

// dumps are ways to dump the database $SHOP and to restore it as $RESTORED.
var dumps = map[string]string{
	"plain":         `pg_dump --file=dump "$SHOP"; psql --quiet --set=ON_ERROR_STOP=1 --file=dump "$RESTORED" >/dev/null`,
	"custom":        `pg_dump --format=custom --file=dump "$SHOP"; pg_restore --exit-on-error --dbname="$RESTORED" dump`,
	"schema":        `pg_dump --schema=postrider --no-unlogged-table-data --file=dump "$SHOP"; psql --quiet --set=ON_ERROR_STOP=1 --file=dump "$RESTORED" >/dev/null`,
	"directory":     `pg_dump --format=directory --jobs=2 --file=dump "$SHOP"; pg_restore --jobs=2 --exit-on-error --dbname="$RESTORED" dump`,
	"data only":     `postrider migrate up --db "$RESTORED"; psql --quiet --command='TRUNCATE postrider.meta' "$RESTORED"; pg_dump --data-only --schema=postrider --file=dump "$SHOP"; psql --quiet --set=ON_ERROR_STOP=1 --file=dump "$RESTORED" >/dev/null`,
	"as it is told": "",
}

// documented are the commands of docs/operating.md.
func documented(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "## Restoring a backup")
	_, block, _ := strings.Cut(section, "```sh\n")
	block, _, ends := strings.Cut(block, "```")
	if !found || !ends {
		t.Fatal("docs/operating.md has no commands under Restoring a backup")
	}
	return block
}

// A dump is restored into a fresh cluster, whose transaction ids begin low again,
// after the relay was stopped. What was recorded as sent is not sent again,
// everything else is, and what is enqueued afterwards; also when the new
// cluster's ids have come to where the old one's were.
func TestDumpIntoAFreshCluster(t *testing.T) {
	names := []string{"as it is told", "data only", "plain", "schema", "custom", "directory"}
	for _, name := range names[:testsize.Pick(2, len(names))] {
		commands := dumps[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig := awsrig.New(t)
			old := newShop(t, rig, database(t, server(t, "", nil), "shop"))
			old.postrider("migrate", "up")
			old.ages(10_000)
			old.start()
			first := old.enqueue(300)
			old.arrive(first)
			old.cleaned()
			second := old.enqueue(100) // whose ids the new cluster will come to
			old.arrive(second)
			old.stop()
			old.only(first, second)
			waiting := old.enqueue(100)

			fresh := newShop(t, rig, database(t, server(t, "", map[string]string{"synchronous_commit": "off"}), "shop"))
			fresh.restore(old, commands)
			fresh.start()
			fresh.arrive(waiting)
			fresh.stop()
			for range testsize.Pick(2, 6) {
				fresh.ages(4000)
				fresh.start()
				more := fresh.enqueue(20)
				fresh.arrive(more)
				waiting = append(waiting, more...)
				fresh.healthy()
				fresh.stop()
			}
			fresh.only(waiting)
		})
	}
}

// restore runs the commands, by default those that are documented.
func (s *shop) restore(from *shop, commands string) {
	s.t.Helper()
	if commands == "" {
		commands = documented(s.t)
	}
	shell(s.t, s.t.TempDir(), commands, "SHOP="+from.db, "RESTORED="+s.db, "PATH="+filepath.Dir(programs.Path(programs.Postrider))+":"+os.Getenv("PATH"))
}

// The dump is taken while producers and a relay are at work, which go on with the
// old server for a while. What the dump holds as sent is not sent again, and
// everything else that it holds is. The old relay does no harm.
func TestDumpUnderLoad(t *testing.T) {
	for _, name := range []string{"plain", "custom"}[:testsize.Pick(1, 2)] {
		commands := dumps[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig := awsrig.New(t)
			one := server(t, "", nil)
			old := newShop(t, rig, database(t, one, "shop"))
			old.postrider("migrate", "up")
			old.start()
			stop := old.crowd()
			old.arrive(old.enqueue(200))

			// Once into the same cluster, once into a fresh one.
			for _, db := range []string{database(t, one, "again"), database(t, server(t, "", nil), "shop")} {
				dumped := newShop(t, rig, db)
				dumped.restore(old, commands)
				waiting := dumped.payloadsOf(`SELECT payload FROM postrider.messages WHERE state = 'pending' UNION ALL
					SELECT l.payload FROM postrider.log_0 AS l WHERE NOT EXISTS (SELECT FROM postrider.cursor WHERE shard = 0)`)
				dumped.start()
				dumped.arrive(waiting)
				more := dumped.enqueue(50)
				dumped.arrive(more)
				dumped.healthy()
				dumped.stop()
				dumped.only(waiting, more)
			}
			old.arrive(stop())
			old.stop()
		})
	}
}

// The schema is restored in place, to how it was before, while a relay runs. What
// was enqueued and sent since the dump is gone from it, and numbers are given out
// again; the relay goes on with what is there.
func TestDumpInPlace(t *testing.T) {
	rig := awsrig.New(t)
	s := newShop(t, rig, database(t, server(t, "", nil), "shop"))
	s.postrider("migrate", "up")
	s.start()
	first := s.enqueue(100)
	s.arrive(first)
	dir := t.TempDir()
	shell(t, dir, `pg_dump --schema=postrider --file=dump "$SHOP"`, "SHOP="+s.db)
	since := s.enqueue(100)
	s.arrive(since)
	shell(t, dir, `psql --quiet --command='DROP SCHEMA postrider CASCADE' "$SHOP"; psql --quiet --single-transaction --set=ON_ERROR_STOP=1 --file=dump "$SHOP" >/dev/null`, "SHOP="+s.db)
	later := s.enqueue(150) // past the numbers that were sent
	s.arrive(later)
	s.healthy()
	s.stop()
	for p, n := range s.came {
		if n > 1 && !slices.Contains(first, p) {
			t.Errorf("%s came %d times", p, n)
		}
	}
}

// A schema that somebody has copied table by table is none of ours: it is said
// what is missing.
func TestCopiedByHand(t *testing.T) {
	rig := awsrig.New(t)
	s := newShop(t, rig, database(t, server(t, "", nil), "shop"))
	s.postrider("migrate", "up", "--shards", "1")
	s.exec(`CREATE SCHEMA copy;
		CREATE TABLE copy.meta (LIKE postrider.meta INCLUDING ALL); INSERT INTO copy.meta SELECT * FROM postrider.meta`)
	copied := func(want string) {
		t.Helper()
		for _, args := range [][]string{{"status"}, {"relay", "--to", "sqs://" + s.queue, "--http", "off"}} {
			code, stdout, stderr := programs.Run(t, s.env, programs.Postrider, append(args, "--schema", "copy", "--db", s.db)...)
			if code == 0 || !strings.Contains(stderr, want) {
				t.Errorf("%s: exit code %d, and it does not say %q:\n%s%s", args[0], code, want, stdout, stderr)
			}
		}
	}
	copied("log_0")
	for _, table := range []string{"log_0", "cursor", "gap", "mark", "parked", "member", "route", "audit", "retention", "inbox"} {
		s.exec(`CREATE TABLE copy.` + table + ` (LIKE postrider.` + table + ` INCLUDING ALL)`)
	}
	copied("log_0_seq")
}
