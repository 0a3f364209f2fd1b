package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/internal/pgserver"
	"github.com/postrider/postrider/test/internal/awsrig"
	"github.com/postrider/postrider/test/internal/programs"
)

// shop is a database with the log, and a queue that its relays send to.
type shop struct {
	t     *testing.T
	db    string
	rig   *awsrig.Rig
	queue string
	env   []string
	relay *programs.Process
	came  map[string]int // how often each message came to the queue
}

// newShop has a queue of its own. The tables are not made yet.
func newShop(t *testing.T, rig *awsrig.Rig, db string) *shop {
	t.Helper()
	return &shop{t: t, db: db, rig: rig, came: map[string]int{},
		queue: rig.Queue("", map[string]string{"VisibilityTimeout": "43200"}), // what was counted once stays away
		env: programs.Environment(t, "AWS_REGION="+awsemulator.Region, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
			"AWS_ENDPOINT_URL="+*rig.Direct.BaseEndpoint)}
}

// postrider runs the program to its end, which must be a good one.
func (s *shop) postrider(args ...string) string {
	s.t.Helper()
	code, stdout, stderr := programs.Run(s.t, s.env, programs.Postrider, append(args, "--db", s.db)...)
	if code != 0 {
		s.t.Fatalf("postrider %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// start starts a relay. It deletes old messages soon, so that the log is cleaned.
func (s *shop) start() {
	s.t.Helper()
	config := filepath.Join(s.t.TempDir(), "relay.yaml")
	text := fmt.Sprintf("database: %q\nhttp: 127.0.0.1:0\nroutes:\n  - {name: orders, topics: [\"**\"], to: \"sqs://%s\"}\nretention: {sent: 2s}\n", s.db, s.queue)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.relay = programs.Start(s.t, s.env, programs.Postrider, "relay", "--config", config)
}

// stop stops the relay cleanly: everything that was sent is recorded.
func (s *shop) stop() {
	s.t.Helper()
	s.relay.Stop()
}

var payloads atomic.Int64

// enqueue commits messages and returns their payloads.
func (s *shop) enqueue(n int) (sent []string) {
	s.t.Helper()
	for len(sent) < n {
		sent = append(sent, fmt.Sprintf(`{"n":%d}`, payloads.Add(1)))
	}
	s.exec(`SELECT postrider.enqueue('orders', convert_to(p, 'UTF8'), key => (random() * 50)::int::text) FROM unnest($1::text[]) AS p`, sent)
	return sent
}

func (s *shop) exec(sql string, args ...any) {
	s.t.Helper()
	if err := execute(s.t.Context(), s.db, sql, args...); err != nil {
		s.t.Fatalf("%.300s: %v", sql, err)
	}
}

func execute(ctx context.Context, db, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, db)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if args == nil {
		args = []any{pgx.QueryExecModeSimpleProtocol} // so that there may be several statements
	}
	_, err = conn.Exec(ctx, sql, args...)
	return err
}

// payloadsOf runs a query for messages.
func (s *shop) payloadsOf(sql string) []string {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.db)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(s.t.Context()))
	rows, err := conn.Query(s.t.Context(), `SELECT convert_from(payload, 'UTF8') FROM (`+sql+`) AS m`)
	if err == nil {
		var all []string
		if all, err = pgx.CollectRows(rows, pgx.RowTo[string]); err == nil {
			return all
		}
	}
	s.t.Fatal(err)
	return nil
}

// collect takes what is in the queue.
func (s *shop) collect() {
	s.t.Helper()
	for _, m := range s.rig.Waiting(s.queue) {
		s.came[aws.ToString(m.Body)]++
	}
}

// arrive waits until all have come.
func (s *shop) arrive(want []string) {
	s.t.Helper()
	programs.Eventually(s.t, "the messages come", nil, func() error {
		s.collect()
		lacking := slices.DeleteFunc(slices.Clone(want), func(p string) bool { return s.came[p] > 0 })
		return programs.Unless(len(lacking) == 0, "%d of %d have not come", len(lacking), len(want))
	})
}

// only checks that no other message came. (One of these may have come twice: when
// the machine is so slow that the relay gives a call up.)
func (s *shop) only(want ...[]string) {
	s.t.Helper()
	s.collect()
	all := map[string]bool{}
	for _, w := range want {
		for _, p := range w {
			all[p] = true
		}
	}
	for p := range s.came {
		if !all[p] {
			s.t.Errorf("%s came, which was recorded as sent or did not commit", p)
		}
	}
}

// healthy waits until status finds nothing wrong.
func (s *shop) healthy() {
	s.t.Helper()
	programs.Eventually(s.t, "status finds nothing wrong", nil, func() error {
		code, stdout, stderr := programs.Run(s.t, s.env, programs.Postrider, "status", "--check", "--db", s.db)
		return programs.Unless(code == 0, "it says\n%s%s", stdout, stderr)
	})
}

// cleaned waits until old messages were deleted.
func (s *shop) cleaned() {
	s.t.Helper()
	programs.Eventually(s.t, "old messages are deleted", nil, func() error {
		return programs.Unless(len(s.payloadsOf(`SELECT '\x'::bytea AS payload FROM postrider.retention WHERE low > 0`)) > 0, "none were")
	})
}

// ages spends transaction ids.
func (s *shop) ages(n int) {
	s.t.Helper()
	s.exec(fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`, n))
}

// crowd enqueues until the function that it returns is called, which returns what
// committed. A database that is away is asked again.
func (s *shop) crowd() (stop func() []string) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var sent []string
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			p := fmt.Sprintf(`{"n":%d}`, payloads.Add(1))
			if execute(context.WithoutCancel(ctx), s.db, `SELECT postrider.enqueue('orders', convert_to($1, 'UTF8'), key => 'k')`, p) == nil {
				sent = append(sent, p)
			}
		}
	})
	stop = func() []string { cancel(); done.Wait(); return sent }
	s.t.Cleanup(func() { stop() })
	return stop
}

// server is one with a database for a shop.
func server(t *testing.T, dir string, settings map[string]string) *pgserver.Server {
	t.Helper()
	o := pgserver.Options{Dir: dir, Settings: map[string]string{"fsync": "off"}}
	for name, value := range settings {
		o.Settings[name] = value
	}
	s, err := pgserver.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// database creates one on the server and returns its URL.
func database(t *testing.T, s *pgserver.Server, name string) string {
	t.Helper()
	if err := execute(t.Context(), s.URL("postgres"), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return s.URL(name)
}

// shell runs lines as an operator does, with variables as NAME=value.
func shell(t *testing.T, dir, lines string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", lines)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", lines, err, out)
	}
}

// switchboard is an address that leads to a server, and then to another one.
type switchboard struct {
	listener net.Listener
	mu       sync.Mutex
	to       string
	calls    []net.Conn
}

// newSwitchboard returns the URL by which the database is reached through it.
func newSwitchboard(t *testing.T, db string) (*switchboard, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &switchboard{listener: l}
	t.Cleanup(func() { _ = l.Close(); b.hangUp() })
	u := b.lead(t, db)
	go b.serve()
	u.Host = l.Addr().String()
	return b, u.String()
}

// lead has new calls lead to another database.
func (b *switchboard) lead(t *testing.T, db string) *url.URL {
	t.Helper()
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.to = u.Host
	b.mu.Unlock()
	b.hangUp()
	return u
}

func (b *switchboard) hangUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.calls {
		_ = c.Close()
	}
	b.calls = nil
}

func (b *switchboard) serve() {
	for {
		from, err := b.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		b.mu.Lock()
		to, err := net.Dial("tcp", b.to)
		if err != nil {
			_ = from.Close()
		} else {
			b.calls = append(b.calls, from, to)
			for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(way[1], way[0])
					_, _ = from.Close(), to.Close()
				}()
			}
		}
		b.mu.Unlock()
	}
}
