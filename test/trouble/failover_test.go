package trouble

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/pgserver"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/test/internal/dbgate"
	"github.com/postrider/postrider/test/internal/programs"
)

// The primary dies and a standby that has every commit is promoted. The URL names
// both, and asks for the one that can be written to.
func TestFailover(t *testing.T) {
	everyVersion(t, func(t *testing.T, version string) {
		primary := pgtest.ServerOf(t, version)
		standby := pgtest.Standby(t, primary, nil)
		w := newWorld(t, primary, nil)
		w.follows(standby)
		w.reconfigure("synchronous_standby_names = '*'")
		second := dbgate.New(t, asRole(t, standby.URL(database)))
		w.start(both(w.gate, second))
		w.must(primary.Kill())
		w.failedOver(standby, second, nil)
	})
}

// Commits that the standby never got are lost, after their messages were sent. The
// address leads to the standby, first while it is none that can be written to.
func TestFailoverLosesCommits(t *testing.T) {
	everyVersion(t, func(t *testing.T, version string) {
		primary := pgtest.ServerOf(t, version)
		standby := pgtest.Standby(t, primary, nil)
		w := newWorld(t, primary, nil)
		w.follows(standby)
		w.start(w.gate.URL)

		w.must(syscall.Kill(w.ask(primary, "SELECT pid FROM pg_stat_replication"), syscall.SIGSTOP))
		shipped := len(w.committed())
		for len(w.committed()) < shipped+50 {
			w.flows(programs.Patience)
		}
		w.writer.stop() // what the old primary has is not to change any more
		before := w.arrive(programs.Patience)
		w.must(primary.Kill())
		w.gate.LeadTo(t, standby.URL(database))
		w.failedOver(standby, w.gate, before)
	})
}

// both is a URL that leads through the first gate or the second.
func both(first, second *dbgate.Gate) string {
	host := second.URL[strings.Index(second.URL, "@")+1:]
	host, _, _ = strings.Cut(host, "/")
	return strings.Replace(first.URL, "/"+database, ","+host+"/"+database, 1) + "&target_session_attrs=read-write"
}

// follows waits until the standby has what is committed by now.
func (w *world) follows(standby *pgserver.Server) {
	w.t.Helper()
	want := len(w.committed())
	programs.Eventually(w.t, "the standby follows", nil, func() error {
		got, err := readLog(standby.URL(database))
		return programs.Unless(err == nil && len(got) >= want, "it has %d of %d (%v)", len(got), want, err)
	})
}

func (w *world) ask(server *pgserver.Server, query string) (n int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), programs.Patience)
	defer cancel()
	conn, err := connect(ctx, server.URL(database))
	w.must(err)
	defer conn.Close(context.WithoutCancel(ctx))
	w.must(conn.QueryRow(ctx, query).Scan(&n))
	return n
}

// failedOver promotes the standby and holds the relay to what is promised:
// nothing that the new primary has is lost, and nothing is sent again that it
// has as sent. before is what the old one had, where commits were lost.
func (w *world) failedOver(standby *pgserver.Server, gate *dbgate.Gate, before []message) {
	w.t.Helper()
	began, connects := time.Now(), gate.Connects()
	programs.Eventually(w.t, "readiness tells of it", nil, func() error {
		<-time.After(500 * time.Millisecond)
		text := w.health.ready()
		return programs.Unless(strings.Contains(text, "is a standby") || strings.Contains(text, "read-only") || strings.Contains(text, "read only") ||
			strings.Contains(text, "does not answer"), "it says %s", text)
	})
	settled := w.settled(standby)
	times, _ := w.queue.seen()
	w.server = standby
	w.must(run(standby.URL("postgres"), "SELECT pg_promote()"))
	kept := w.committed()
	w.writer.stop()
	w.writer = startWriter(w.t, standby.URL(database))
	promoted := time.Now()
	w.flows(recovery)
	w.t.Logf("messages flow %v after the promotion", time.Since(promoted))
	w.bounded(time.Since(began), gate.Connects()-connects, 0, 0)

	w.writer.stop()
	committed := w.arrive(programs.Patience)
	lost := map[string]bool{}
	for _, m := range before {
		lost[m.id] = true
	}
	for _, m := range kept {
		delete(lost, m.id)
	}
	if before != nil && len(lost) == 0 {
		w.t.Fatal("no commit was lost, so this test tests nothing")
	}
	repeated := w.queue.check(w.t, committed, lost)
	for _, id := range repeated {
		if settled[id] && times[id] > 0 {
			w.t.Errorf("message %s was sent again, and the new primary had it as sent", id)
		}
	}
	w.t.Logf("%d commits were lost; of %d messages %d arrived more than once, and %d were settled", len(lost), len(committed), len(repeated), len(settled))
	w.end()
}

// settled are the messages that count as sent on a server, by id.
func (w *world) settled(server *pgserver.Server) map[string]bool {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), programs.Patience)
	defer cancel()
	conn, err := connect(ctx, server.URL(database))
	w.must(err)
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, "SELECT id::text FROM postrider.messages WHERE state = 'sent'")
	w.must(err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.must(err)
	settled := map[string]bool{}
	for _, id := range ids {
		settled[id] = true
	}
	return settled
}

// A relay that is started on a standby says so and ends.
func TestStandbyIsRefused(t *testing.T) {
	everyVersion(t, func(t *testing.T, version string) {
		primary := pgtest.ServerOf(t, version)
		standby := pgtest.Standby(t, primary, nil)
		w := newWorld(t, primary, nil)
		w.follows(standby)
		code, _, stderr := programs.Run(t, w.env, programs.Postrider, "relay", "--http", "off", "--to", "sqs://"+w.queue.name, "--db", asRole(t, standby.URL(database)))
		if code != 3 || !strings.Contains(stderr, "is a standby: the relay needs the primary") || !strings.Contains(stderr, "target_session_attrs=read-write") {
			t.Errorf("exit code %d, %s", code, stderr)
		}
	})
}
