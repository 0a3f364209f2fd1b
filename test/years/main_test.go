// Package years holds the relay to what it promises over years, in a short time:
// old messages go, tables and memory stay bounded, whatever others do to the
// database. The relay counts its messages instead of sending them.
package years

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/store/pgstore"
	"github.com/postrider/postrider/test/internal/load"
	"github.com/postrider/postrider/test/internal/programs"
)

// counter is the built program of test/internal/counter. It is built without the
// race detector, which multiplies what a process takes.
var counter string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "counter-")
	if err == nil {
		counter = filepath.Join(dir, "counter")
		var out []byte
		if out, err = exec.Command("go", "build", "-buildvcs=false", "-o", counter, "github.com/postrider/postrider/test/internal/counter").CombinedOutput(); err != nil {
			err = fmt.Errorf("build the counter: %w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// patience bounds every wait for something that must happen.
var patience = pick(2*time.Minute, 10*time.Minute)

// world is a database of the test's own with the outbox in it.
type world struct {
	t    *testing.T
	url  string
	pool *pgxpool.Pool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, url: pgtest.Database(t)}
	w.pool = w.connect("")
	if _, err := pgstore.Migrate(t.Context(), w.pool, pgstore.Options{}); err != nil {
		t.Fatal(err)
	}
	return w
}

// connect returns a pool whose connections have more settings, as of a URL.
func (w *world) connect(settings string) *pgxpool.Pool {
	w.t.Helper()
	pool, err := pgxpool.New(w.t.Context(), w.url+"&pool_max_conns=20"+settings)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(pool.Close)
	return pool
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) number(sql string, args ...any) (n int) {
	w.t.Helper()
	if err := w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// onLogs is a query over the logs of all shards.
func onLogs(query string) string {
	var parts []string
	for shard := range pgstore.DefaultShards {
		parts = append(parts, strings.ReplaceAll(query, "{log}", fmt.Sprintf("postrider.log_%d", shard)))
	}
	return strings.Join(parts, " UNION ALL ")
}

// rows is how many messages are in the log.
func (w *world) rows() int {
	w.t.Helper()
	return w.number(`SELECT sum(n)::bigint FROM (` + onLogs(`SELECT count(*) AS n FROM {log}`) + `) AS all_logs`)
}

// bytes is what the tables take on the disk.
func (w *world) bytes() int {
	w.t.Helper()
	return w.number(`SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class AS c WHERE c.relnamespace = 'postrider'::regnamespace AND c.relkind = 'r'`)
}

// eventually waits until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	programs.Within(t, patience, what, nil, check)
}

// relay is a counter at work.
type relay struct {
	t       *testing.T
	cmd     *exec.Cmd
	said    strings.Builder
	reports chan load.Report
	latest  load.Report
	all     []load.Report
	ended   chan struct{}
	peak    int // of its memory, in bytes; once it has stopped
}

func (w *world) relay(args ...string) *relay {
	w.t.Helper()
	r := &relay{t: w.t, cmd: exec.Command(counter, args...), reports: make(chan load.Report, 10_000), ended: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), "COUNTER_DATABASE="+w.url)
	r.cmd.Stderr = &r.said
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		defer close(r.reports)
		for in := json.NewDecoder(out); ; {
			var report load.Report
			if err := in.Decode(&report); err != nil {
				break
			}
			if report.Last {
				r.peak = peakMemory(r.cmd.Process.Pid)
			}
			r.reports <- report
		}
		_ = r.cmd.Wait() // the exit code tells
	}()
	w.t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
		if w.t.Failed() {
			w.t.Logf("the relay (%s) said:\n%s", r.cmd.ProcessState, r.said.String())
		}
	})
	return r
}

// peakMemory is the most that a process has had resident, in bytes (proc(5), VmHWM).
func peakMemory(pid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kib << 10
		}
	}
	return 0
}

func (r *relay) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// until waits for a report of which check returns nil.
func (r *relay) until(what string, check func(load.Report) error) {
	r.t.Helper()
	timeout := time.After(patience)
	for {
		err := check(r.latest)
		if err == nil {
			return
		}
		select {
		case report, ok := <-r.reports:
			if !ok {
				r.t.Fatalf("%s: %v; the relay has ended", what, err)
			}
			r.latest = report
			r.all = append(r.all, report)
		case <-timeout:
			r.t.Fatalf("%s: %v", what, err)
		}
	}
}

// got waits until n messages have been counted.
func (r *relay) got(n int) {
	r.t.Helper()
	r.until("count messages", func(report load.Report) error {
		if report.Got < n {
			return fmt.Errorf("%d of %d", report.Got, n)
		}
		return nil
	})
}

// stop stops it cleanly and returns its last report.
func (r *relay) stop() load.Report {
	r.t.Helper()
	r.signal(syscall.SIGTERM)
	<-r.ended
	for report := range r.reports {
		r.latest = report
		r.all = append(r.all, report)
	}
	if code := r.cmd.ProcessState.ExitCode(); code != 0 || !r.latest.Last {
		r.t.Fatalf("the relay ended with %d", code)
	}
	return r.latest
}

// exactly checks that n messages came, each once and in its key's order.
func exactly(t *testing.T, n int, reports ...load.Report) {
	t.Helper()
	var sum load.Report
	for _, r := range reports {
		sum.Got, sum.Doubles, sum.Disorder, sum.Wrong = sum.Got+r.Got, sum.Doubles+r.Doubles, sum.Disorder+r.Disorder, sum.Wrong+r.Wrong
	}
	if want := (load.Report{Got: n}); sum != want {
		t.Errorf("of %d messages %d came, %d of them twice, %d out of order, and %d others", n, sum.Got, sum.Doubles, sum.Disorder, sum.Wrong)
	}
}
