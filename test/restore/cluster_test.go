package restore

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/pgserver"
	"github.com/postrider/postrider/test/internal/awsrig"
	"github.com/postrider/postrider/test/internal/programs"
)

// A base backup is taken while producers and a relay are at work, and recovered to
// a time after it, while the old server and its relay went on. Positions and log go
// back together: what was recorded as sent is not sent again, what commits later
// gets numbers that were given out already, and arrives. A relay that served the
// old server and is led to the new one loads its state anew.
func TestRecoveryToAPointInTime(t *testing.T) {
	t.Parallel()
	archive, dir := folder(t), folder(t)
	one := server(t, "", map[string]string{"archive_mode": "on", "archive_command": "cp %p " + archive + "/%f"})
	old := newShop(t, awsrig.New(t), database(t, one, "shop"))
	old.postrider("migrate", "up")
	direct := old.db
	lines, through := newSwitchboard(t, direct)
	old.db = through
	old.start()
	old.db = direct
	stop := old.crowd()
	old.arrive(old.enqueue(100))

	serverProgram(t, bin(t, one), "", nil, "pg_basebackup", "--dbname="+one.URL("postgres"), "--pgdata="+filepath.Join(dir, "data"), "--checkpoint=fast")
	between := old.enqueue(100)
	before := append(stop(), between...)
	old.arrive(before)
	old.settled()
	old.collect()
	came := maps.Clone(old.came)
	old.exec(`SELECT pg_create_restore_point('then')`)
	old.arrive(old.enqueue(300))
	old.exec(`SELECT pg_switch_wal()`)

	write(t, filepath.Join(dir, "password"), secret(t, one.Dir()))
	write(t, filepath.Join(dir, "data", "recovery.signal"), "")
	write(t, filepath.Join(dir, "data", "postgresql.auto.conf"),
		fmt.Sprintf("restore_command = 'cp %s/%%f %%p'\nrecovery_target_name = 'then'\nrecovery_target_action = 'promote'\n", archive))
	recovered := newShop(t, old.rig, server(t, dir, nil).URL("shop"))
	recovered.writable()
	more := recovered.enqueue(400)
	lines.lead(t, recovered.db) // and the relay, whose queue is the old one's, follows
	old.arrive(more)
	recovered.healthy()
	old.stop()
	for p, n := range came {
		if old.came[p] != n {
			t.Errorf("%s came again, which was recorded as sent", p)
		}
	}
	recovered.start()
	last := recovered.enqueue(20)
	recovered.arrive(last)
	recovered.stop()
	recovered.only(last)
}

// pg_upgrade from a version to the same, by copying and by linking files. What was
// recorded as sent is not sent again, and everything else is.
func TestUpgradeOfTheCluster(t *testing.T) {
	for name, options := range map[string][]string{"copy": nil, "link": {"--link"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to, work := folder(t), folder(t), folder(t)
			one, two := server(t, from, nil), server(t, to, nil)
			old := newShop(t, awsrig.New(t), database(t, one, "shop"))
			old.postrider("migrate", "up")
			old.ages(5000)
			old.start()
			first := old.enqueue(200)
			old.arrive(first)
			old.cleaned()
			second := old.enqueue(50)
			old.arrive(second)
			old.stop()
			old.only(first, second)
			waiting := old.enqueue(100)
			programs := bin(t, one)
			for _, s := range []*pgserver.Server{one, two} {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			// Both are copies of one cluster, so they have the same password.
			serverProgram(t, programs, work, []string{"PGPASSWORD=" + secret(t, from)}, "pg_upgrade", append(options,
				"--old-datadir="+filepath.Join(from, "data"), "--new-datadir="+filepath.Join(to, "data"), "--old-bindir="+programs, "--new-bindir="+programs,
				"--old-port="+port(t), "--new-port="+port(t), "--username=postgres", "--socketdir="+work)...)

			upgraded := newShop(t, old.rig, server(t, to, nil).URL("shop"))
			upgraded.start()
			upgraded.arrive(waiting)
			more := upgraded.enqueue(100)
			upgraded.arrive(more)
			upgraded.healthy()
			upgraded.stop()
			upgraded.only(waiting, more)
		})
	}
}

// settled waits until nothing is pending.
func (s *shop) settled() {
	s.t.Helper()
	programs.Eventually(s.t, "everything is recorded", nil, func() error {
		n := len(s.payloadsOf(`SELECT payload FROM postrider.messages WHERE state = 'pending'`))
		return programs.Unless(n == 0, "%d messages are pending", n)
	})
}

// writable waits until the server has recovered.
func (s *shop) writable() {
	s.t.Helper()
	programs.Eventually(s.t, "the server has recovered", nil, func() error {
		return execute(s.t.Context(), s.db, `DO $$ BEGIN IF pg_is_in_recovery() THEN RAISE 'it recovers'; END IF; END $$`)
	})
}

// account is whom the servers run as: programs that work on their files do too.
func account(t *testing.T) (uid, gid int) {
	t.Helper()
	if uid = os.Geteuid(); uid != 0 {
		return uid, os.Getegid()
	}
	for _, name := range []string{"postgres", "_postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ = strconv.Atoi(u.Uid)
			gid, _ = strconv.Atoi(u.Gid)
			return uid, gid
		}
	}
	t.Fatal("nobody to run servers as")
	return 0, 0
}

// folder makes one that belongs to the servers' account.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "restore-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	own(t, dir)
	return dir
}

func own(t *testing.T, path string) {
	t.Helper()
	uid, gid := account(t)
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	own(t, path)
}

// secret is the superuser's password of the server in the folder.
func secret(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "password"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// bin is where the server's programs are.
func bin(t *testing.T, s *pgserver.Server) (dir string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := conn.QueryRow(t.Context(), `SELECT setting FROM pg_config WHERE name = 'BINDIR'`).Scan(&dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// serverProgram runs one of the server's programs as its account.
func serverProgram(t *testing.T, bin, dir string, env []string, name string, args ...string) {
	t.Helper()
	if dir == "" {
		dir = "/"
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, name), args...)
	cmd.Dir, cmd.Env = dir, append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}, env...)
	if uid, gid := account(t); uid != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// port is one that nobody listens on.
func port(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
