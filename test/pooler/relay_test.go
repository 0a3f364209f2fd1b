package pooler

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/test/internal/programs"
)

// A relay and operators work through a pooler, which the relay notices. It sends
// statements in a way that needs no session unless the URL says how.
func TestRelayAndOperatorsThroughAPooler(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", "cache_describe", "exec", "simple_protocol"} {
		t.Run("mode "+mode, func(t *testing.T) {
			t.Parallel()
			url, owner := database(t)
			b := newBouncer(t, url, "default_pool_size=3", "server_idle_timeout=1")
			var parameters []string
			if mode != "" {
				parameters = append(parameters, "default_query_exec_mode="+mode)
			}
			p := newPost(t, b.url(parameters...), owner, "postrider")
			r := p.relay()
			if mode == "" {
				mode = "cache_describe"
			}
			if got := r.Said(`msg="a pooler stands before the database" query_exec_mode=`); got != mode {
				t.Errorf("it sends statements by %s, want %s", got, mode)
			}
			p.enqueue(200)
			p.put(outbox.Message{Topic: "nowhere", Key: "lost", Payload: []byte("{}")})
			p.sent++
			p.put(outbox.Message{Topic: p.queue, Key: "later", NotBefore: time.Now().Add(time.Second), Payload: []byte(odd), Headers: map[string]string{"h": odd}})
			p.arrive()
			p.settled(outbox.StateFailed, 1)
			p.operate()
			r.Stop()
			p.once()
			p.nothingMore()
			if said := r.Output.String(); strings.Contains(said, "level=ERROR") || strings.Contains(said, "prepared statement") {
				t.Errorf("it says\n%s", said)
			}
		})
	}
}

// operate does what operators do, to the one message that failed and to the route.
func (p *post) operate() {
	p.t.Helper()
	for _, step := range []struct{ command, want string }{
		{"status", "1 message failed"},
		{"list --state failed", "nowhere"},
		{"retry --route default --yes --note again", "1"},
		{"migrate status", "missing   nothing"},
		{"migrate up", "nothing to do"},
	} {
		if got := p.run(strings.Split(step.command, " ")...); !strings.Contains(got, step.want) {
			p.t.Errorf("%s: it lacks %q:\n%s", step.command, step.want, got)
		}
	}
	p.settled(outbox.StateFailed, 1) // it was tried again
	p.run("discard", "--route", "default", "--state", "failed", "--yes")
	p.settled(outbox.StateDiscarded, 1)
	p.run("pause", "default")
	p.enqueue(10)
	p.run("resume", "default")
	p.arrive()
	if got := p.run("audit"); !strings.Contains(got, "discard") || !strings.Contains(got, "pause") || !strings.Contains(got, "again") {
		p.t.Errorf("audit:\n%s", got)
	}
}

// Statements with names that the pooler does not keep: the program says so, and
// what to do.
func TestAModeThatNeedsASession(t *testing.T) {
	t.Parallel()
	url, owner := database(t)
	b := newBouncer(t, url, "default_pool_size=3")
	newPost(t, b.url(), owner, "postrider")
	p := &post{t: t, db: b.url("default_query_exec_mode=cache_statement"), schema: "postrider", env: programs.Environment(t)}
	// Others use the same connections to the server.
	stop := make(chan struct{})
	var group sync.WaitGroup
	other := connect(t, b.url("default_query_exec_mode=exec"))
	for range 3 {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = other.Exec(context.WithoutCancel(t.Context()), `SELECT pg_sleep(0.001)`)
				}
			}
		})
	}
	defer func() { close(stop); group.Wait() }()
	programs.Eventually(t, "it fails", nil, func() error {
		code, _, stderr := p.try("migrate", "status")
		if code == 0 {
			return fmt.Errorf("it went well by chance")
		}
		if code != 2 || !strings.Contains(stderr, "the pooler keeps no prepared statements, which default_query_exec_mode=cache_statement needs") || !strings.Contains(stderr, "leave default_query_exec_mode out") {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		return nil
	})
}

// The pooler goes away and comes back, sessions of the server are ended, and for a
// while every connection to the server is taken: the relay goes on, nothing is
// lost, and after a clean stop nothing is sent again.
func TestThePoolerHasTrouble(t *testing.T) {
	t.Parallel()
	url, owner := database(t)
	b := newBouncer(t, url, "default_pool_size=2", "query_wait_timeout=1", "server_idle_timeout=2")
	p := newPost(t, b.url(), owner, "postrider")
	r := p.relay()
	for round := range testsize.Pick(3, 30) {
		p.enqueue(100)
		switch round % 3 {
		case 0:
			b.stop()
			p.enqueue(100)
			b.start()
		case 1:
			if _, err := owner.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'postrider'`); err != nil {
				t.Fatal(err)
			}
		case 2:
			p.occupy(2, 2500*time.Millisecond)
		}
		p.enqueue(100)
		p.arrive()
	}
	r.Stop()
	p.nothingMore()
}

// occupy keeps so many connections to the server busy through the pooler.
func (p *post) occupy(n int, during time.Duration) {
	p.t.Helper()
	hogs := connect(p.t, p.db+"&default_query_exec_mode=exec")
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			err := pgx.BeginFunc(p.t.Context(), hogs, func(tx pgx.Tx) error {
				_, err := tx.Exec(p.t.Context(), `SELECT pg_sleep($1::float8)`, during.Seconds())
				return err
			})
			if err != nil && !strings.Contains(err.Error(), "query_wait_timeout") {
				p.t.Error(err)
			}
		})
	}
	group.Wait()
}

// Of two relays behind one pooler one dies, and the other one takes over.
func TestTakeoverThroughAPooler(t *testing.T) {
	t.Parallel()
	url, owner := database(t)
	b := newBouncer(t, url, "default_pool_size=2")
	p := newPost(t, b.url(), owner, "postrider")
	p.lease = "3s" // of one that dies
	one, two := p.relay(), p.relay()
	p.enqueue(200)
	p.arrive()
	one.Kill()
	p.enqueue(200)
	p.arrive()
	three := p.relay()
	two.Stop()
	p.enqueue(50)
	p.arrive()
	three.Stop()
	p.nothingMore()
}

// A setting that PgBouncer does not take for a session is refused with what to
// do, and what the program itself would like to set is left out.
func TestSettingsThatAPoolerRefuses(t *testing.T) {
	t.Parallel()
	url, owner := database(t)
	b := newBouncer(t, url)
	newPost(t, b.url(), owner, "postrider")
	for _, parameter := range []string{"search_path=public", "options=-c%20jit%3Doff", "statement_timeout=9s"} {
		p := &post{t: t, db: b.url(parameter), schema: "postrider", env: programs.Environment(t)}
		name, _, _ := strings.Cut(parameter, "=")
		if code, _, stderr := p.try("migrate", "status"); name != "search_path" && (code != 2 || !strings.Contains(stderr, "startup parameter: "+name) || !strings.Contains(stderr, "ignore_startup_parameters")) {
			t.Errorf("%s: exit code %d: %s", parameter, code, stderr)
		} else if name == "search_path" && code != 2 {
			t.Errorf("%s: exit code %d: %s", parameter, code, stderr)
		}
	}
	ignoring := newBouncer(t, url, "ignore_startup_parameters=search_path,statement_timeout,bytea_output,row_security,default_transaction_isolation,jit")
	p := newPost(t, ignoring.url("statement_timeout=9s"), owner, "postrider")
	r := p.relay()
	r.Said("a pooler stands before the database") // though nothing was refused
	p.enqueue(50)
	p.arrive()
	r.Stop()
	p.once()
}
