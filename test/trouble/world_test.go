package trouble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/internal/pgserver"
	"github.com/postrider/postrider/test/internal/awsrig"
	"github.com/postrider/postrider/test/internal/dbgate"
	"github.com/postrider/postrider/test/internal/programs"
)

// The relay's database and the role that owns it, which is no superuser.
const (
	database = "shop"
	role     = "app"
	password = "app"
)

// world is a server with a writer beside it, and a relay that reaches it through
// a gate:
//
//	writer → server ← gate ← relay → emulator → arrivals
type world struct {
	t      *testing.T
	server *pgserver.Server // the writer's
	gate   *dbgate.Gate
	writer *writer
	queue  *arrivals
	env    []string
	relay  *programs.Process
	health *health
}

// newWorld makes all but the relay. behind is a URL that leads to the server in
// its place, for the gate.
func newWorld(t *testing.T, server *pgserver.Server, behind func(url string) string) *world {
	t.Helper()
	w := &world{t: t, server: server}
	w.sql("postgres", "CREATE ROLE "+role+" LOGIN PASSWORD '"+password+"'", "CREATE DATABASE "+database+" OWNER "+role)
	rig := awsrig.New(t)
	w.queue = newArrivals(rig)
	w.env = programs.Environment(t, "AWS_REGION="+awsemulator.Region, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"AWS_ENDPOINT_URL="+w.queue.url)
	direct := asRole(t, server.URL(database))
	code, stdout, stderr := programs.Run(t, w.env, programs.Postrider, "migrate", "up", "--db", direct)
	if code != 0 {
		t.Fatalf("migrate: exit code %d\n%s%s", code, stdout, stderr)
	}
	if behind != nil {
		direct = behind(direct)
	}
	w.gate = dbgate.New(t, direct)
	w.writer = startWriter(t, server.URL(database))
	return w
}

// start starts the relay and waits until messages flow. Its lease is so long that
// it does not get well by waiting for the end of that.
func (w *world) start(db string) {
	w.t.Helper()
	w.relay = programs.Start(w.t, w.env, programs.Postrider, "relay", "--http", "127.0.0.1:0", "--to", "sqs://"+w.queue.name, "--db", db, "--lease", "2m")
	w.health = watchHealth(w.t, w.relay)
	w.flows(programs.Patience)
}

// asRole is a URL for the relay's role.
func asRole(t testing.TB, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, password)
	return u.String()
}

// sql runs statements as the superuser, each in a transaction of its own.
func (w *world) sql(database string, statements ...string) {
	w.t.Helper()
	if err := run(w.server.URL(database), statements...); err != nil {
		w.t.Fatal(err)
	}
}

func run(at string, statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), programs.Patience)
	defer cancel()
	conn, err := connect(ctx, at)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// connect makes a session that the hostile settings of a database do not reach.
func connect(ctx context.Context, at string) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig(at)
	if err != nil {
		return nil, err
	}
	for _, timeout := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		c.RuntimeParams[timeout] = "0"
	}
	c.RuntimeParams["default_transaction_read_only"] = "off"
	c.RuntimeParams["application_name"] = "test"
	return pgx.ConnectConfig(ctx, c)
}

// cutOff ends the relay's sessions.
func (w *world) cutOff() {
	w.t.Helper()
	w.sql(database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+role+"'")
}

// flows waits until everything that is committed by now has arrived, and the
// relay says that it is ready.
func (w *world) flows(within time.Duration) {
	w.t.Helper()
	since := time.Now()
	w.writer.writes(w.t)
	w.arrive(within - time.Since(since))
	programs.Eventually(w.t, "the relay is ready", nil, func() error {
		text := w.health.ready()
		return programs.Unless(strings.HasPrefix(text, "200 "), "it says %s", text)
	})
}

// arrive waits until everything that is committed by now has arrived.
func (w *world) arrive(within time.Duration) (committed []message) {
	w.t.Helper()
	want := w.committed()
	programs.Within(w.t, within, "all messages arrive", &w.queue.news, func() error {
		lacking := w.queue.lacks(want)
		return programs.Unless(lacking == 0, "%d of %d are missing; readiness: %s", lacking, len(want), w.health.ready())
	})
	return want
}

// message is a row of the log.
type message struct {
	shard   int
	seq     int64
	id, key string
}

// committed is all that the database has, in order of number within a shard: the
// log loses nothing but with the database.
func (w *world) committed() (all []message) {
	w.t.Helper()
	programs.Eventually(w.t, "read the log", nil, func() (err error) {
		all, err = readLog(w.server.URL(database))
		return err
	})
	return all
}

func readLog(at string) ([]message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), programs.Patience)
	defer cancel()
	conn, err := connect(ctx, at)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	parts := make([]string, shards)
	for i := range parts {
		parts[i] = fmt.Sprintf("SELECT %d AS shard, seq, id::text, key FROM postrider.log_%d", i, i)
	}
	rows, err := conn.Query(ctx, strings.Join(parts, " UNION ALL ")+" ORDER BY shard, seq")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m message, err error) {
		return m, row.Scan(&m.shard, &m.seq, &m.id, &m.key)
	})
}

const shards = 4

// cpu is the processor time that the relay has used so far.
func (w *world) cpu() time.Duration {
	w.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.relay.ID()))
	if err != nil {
		w.t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const user, system = 11, 12 // proc(5): fields 14 and 15, of which two are cut off
	var ticks int64
	for _, f := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100 // Linux counts in hundredths, for programs
}

// recorded waits until every message of the database counts as sent.
func recorded(t testing.TB, at string) {
	t.Helper()
	programs.Eventually(t, "everything is recorded as sent", nil, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), programs.Patience)
		defer cancel()
		conn, err := connect(ctx, at)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		var left int
		err = conn.QueryRow(ctx, "SELECT count(*) FROM postrider.messages WHERE state <> 'sent'").Scan(&left)
		return programs.Unless(err == nil && left == 0, "%d are not (%v)", left, err)
	})
}

// end ends the relay as an operator does. Nobody may write any more. It cannot
// know whether a record was kept to which the answer was lost: 4 says so.
func (w *world) end() {
	w.t.Helper()
	recorded(w.t, w.server.URL(database))
	w.health.stop()
	if code := w.relay.Terminate(); code != 0 && code != 4 {
		w.t.Errorf("exit code %d", code)
	}
}

// health asks the relay all the time whether it lives.
type health struct {
	base string
	stop func() // and waits until it has; may be called again

	mu    sync.Mutex
	wrong error
}

// patientClient gives an answer time on a machine that is busy.
var patientClient = &http.Client{Timeout: 30 * time.Second}

func watchHealth(t *testing.T, relay *programs.Process) *health {
	t.Helper()
	h := &health{base: "http://" + relay.Said(" http=")}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			text, err := h.ask(ctx, "/healthz")
			if err == nil && text != "200 ok" {
				err = errors.New(text)
			}
			if err != nil && ctx.Err() == nil {
				h.mu.Lock()
				h.wrong = errors.Join(h.wrong, err)
				h.mu.Unlock()
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	h.stop = func() { stop(); asking.Wait() }
	t.Cleanup(func() {
		h.stop()
		if h.wrong != nil {
			t.Errorf("/healthz was not well: %v", h.wrong)
		}
	})
	return h
}

// ask returns the status and the text in one line.
func (h *health) ask(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.base+path, nil)
	if err != nil {
		return "", err
	}
	response, err := patientClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return fmt.Sprintf("%d %s", response.StatusCode, strings.ReplaceAll(strings.TrimSpace(string(body)), "\n", "; ")), err
}

func (h *health) ready() string {
	text, err := h.ask(context.Background(), "/readyz")
	if err != nil {
		return err.Error()
	}
	return text
}
