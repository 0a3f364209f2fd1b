package cli_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
)

// onBoth runs a test on PostgreSQL and on SQLite.
func onBoth(t *testing.T, test func(t *testing.T, db string)) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, pgtest.Database(t))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, "sqlite:"+filepath.Join(t.TempDir(), "shop.db"))
	})
}

// relayByTopic starts a relay that sends each topic to the queue of its name.
func (s *shop) relayByTopic(onFailure string) (p *process, monitor string) {
	s.t.Helper()
	file := write(s.t, s.t.TempDir(), "p.yaml", `
routes:
  - {name: shop, topics: ["**"], to: "sqs://{topic}", encoding: base64, on_failure: `+onFailure+`, retry: {max_attempts: 1}}
`)
	p = s.world().start(s.t, "relay", "--db", s.db, "--config", file, "--http", "127.0.0.1:0", "--lease", "3s")
	return p, s.monitorOf(p)
}

func (s *shop) put(msgs ...outbox.Message) {
	s.t.Helper()
	if path, ok := strings.CutPrefix(s.db, "sqlite:"); ok {
		s.enqueueSQLite(path, msgs)
	} else {
		s.enqueuePostgres(msgs)
	}
}

// run runs a command on the shop's database that must end well, and returns what
// it printed.
func (s *shop) run(args ...string) string {
	s.t.Helper()
	p := s.world().run(s.t, append(args, "--db", s.db)...)
	p.wantExit(0)
	return p.stdout.String()
}

// fails is run for a command that must not end well; the texts must be in what it
// says, wherever. Beside an error it must not tell of a result.
func (s *shop) fails(code int, args []string, texts ...string) {
	s.t.Helper()
	p := s.world().run(s.t, append(args, "--db", s.db)...)
	if got := p.wait(); got != code {
		s.t.Errorf("%v: exit %d, want %d", args, got, code)
	}
	if out := p.stdout.String(); p.stderr.String() != "" && (strings.Contains(out, "no message fits") || strings.Contains(out, "done to 0")) {
		s.t.Errorf("%v: beside the error %s it says %s", args, p.stderr.String(), out)
	}
	for _, text := range texts {
		if !strings.Contains(p.stdout.String()+p.stderr.String(), text) {
			s.t.Errorf("%v: %q is missing in\n%s%s", args, text, p.stdout.String(), p.stderr.String())
		}
	}
}

// listed is what list --json prints.
type listed struct {
	Messages []struct {
		Route, ID, State, Key, Error string
		Shard                        int
		Seq                          int64
		Attempts                     int
	}
	Next *struct{}
}

func (s *shop) list(args ...string) (l listed) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.run(append([]string{"list", "--json"}, args...)...)), &l); err != nil {
		s.t.Fatal(err)
	}
	return l
}

// awaitListed waits until so many messages are listed.
func (s *shop) awaitListed(n int, args ...string) listed {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if l := s.list(args...); len(l.Messages) == n {
			return l
		} else if time.Now().After(deadline) {
			s.t.Fatalf("list %v still has %d messages, not %d", args, len(l.Messages), n)
		}
	}
}

// hostile is a text that would repaint a terminal.
const hostile = "k\x1b[2J\u202e\r\n"

func printable(t *testing.T, text string) {
	t.Helper()
	if strings.ContainsAny(text, "\x1b\r\u202e") {
		t.Errorf("control characters reach the terminal: %q", text)
	}
}

func (s *shop) monitorOf(p *process) string {
	s.t.Helper()
	line := p.awaitLog("postrider relay starts")
	_, rest, _ := strings.Cut(line, " http=")
	address, _, _ := strings.Cut(rest, " ")
	return "http://" + strings.TrimSpace(address)
}
