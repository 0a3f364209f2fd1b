// Package poison runs relays as processes of their own that a message ends at
// every try, on PostgreSQL and on SQLite.
package poison

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
	"github.com/postrider/postrider/store/sqlitestore"
)

const (
	envStore = "POSTRIDER_TEST_POISON_STORE" // where a child's messages rest
	envSink  = "POSTRIDER_TEST_POISON_SINK"  // the file that it publishes to
	poisoned = 99                            // a child's exit code when the message has ended it
	attempts = 3
)

func TestMain(m *testing.M) {
	if os.Getenv(envStore) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := child(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child is a relay that publishes lines to a file.
func child(ctx context.Context) error {
	sink, err := os.OpenFile(os.Getenv(envSink), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	store, err := open(ctx, os.Getenv(envStore))
	if err != nil {
		return err
	}
	r, err := relay.New(relay.Config{
		Store: store, Lease: time.Second,
		Routes: []relay.Route{{
			Name: "r", Topics: []string{"**"}, Publisher: lines{sink},
			Retry: relay.RetryPolicy{MaxAttempts: attempts, Initial: 10 * time.Millisecond},
		}},
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

func open(ctx context.Context, where string) (relay.Store, error) {
	if !strings.HasPrefix(where, "postgres") {
		return sqlitestore.Open(ctx, where, sqlitestore.Options{})
	}
	pool, err := pgxpool.New(ctx, where)
	if err != nil {
		return nil, err
	}
	return poll.New(poll.Config{Pool: pool})
}

// lines writes a line for each message, and dies of the poison.
type lines struct{ to *os.File }

func (l lines) Publish(_ context.Context, msgs []outbox.Message) []outbox.Result {
	results := make([]outbox.Result, len(msgs))
	for i, m := range msgs {
		_, results[i].Err = fmt.Fprintf(l.to, "%s %s\n", m.Key, m.Payload)
		if string(m.Payload) == "poison" {
			os.Exit(poisoned)
		}
	}
	return results
}

// A process dies of one message whenever it publishes it, and is started again.
// That message fails when its attempts are spent, and all others arrive, in the
// order of their keys.
func TestPoison(t *testing.T) {
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		url := pgtest.Database(t)
		db, err := sql.Open("pgx", url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		if _, err := pgstore.Migrate(t.Context(), pool, pgstore.Options{Shards: 2}); err != nil {
			t.Fatal(err)
		}
		test(t, url, db, outbox.NewWriter(pgstore.SQL{}), "postrider.parked")
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "outbox.db")
		s, err := sqlitestore.Open(t.Context(), path, sqlitestore.Options{Shards: 2})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		test(t, path, s.DB(), outbox.NewWriter(sqlitestore.SQL{}), "postrider_parked")
	})
}

func test(t *testing.T, where string, db *sql.DB, writer *outbox.Writer[*sql.Tx], parked string) {
	const n = 200
	keys := []string{"a", "b", "", "poisoned", "c"}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var msgs []outbox.Message
	for i := range n {
		msgs = append(msgs, outbox.Message{Topic: "t", Key: keys[i%len(keys)], Payload: fmt.Appendf(nil, "%04d", i)})
		if i == 60 {
			msgs = append(msgs, outbox.Message{Topic: "t", Key: "poisoned", Payload: []byte("poison")})
		}
	}
	if err := writer.Enqueue(t.Context(), tx, msgs...); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	sink := filepath.Join(t.TempDir(), "sink")
	deaths := liveUntil(t, where, sink, func() bool {
		var failed int
		var others int
		err := db.QueryRowContext(t.Context(), "SELECT count(*) FILTER (WHERE state = 'failed'), count(*) FILTER (WHERE state <> 'failed') FROM "+parked).
			Scan(&failed, &others)
		return err == nil && failed > 0 && others == 0 && len(arrived(t, sink, false)) == n
	})

	rows, err := db.QueryContext(t.Context(), "SELECT state, attempts, error, key FROM "+parked)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := 0
	for rows.Next() {
		var state, reason, key string
		var spent int
		if err := rows.Scan(&state, &spent, &reason, &key); err != nil {
			t.Fatal(err)
		}
		found++
		if state != "failed" || spent != attempts || !strings.Contains(reason, "died while it published") || key != "poisoned" {
			t.Errorf("parked: %s after %d attempts, of key %q: %s", state, spent, key, reason)
		}
	}
	if err := rows.Err(); err != nil || found != 1 {
		t.Errorf("%d messages are parked, %v; want the poison alone", found, err)
	}
	if tries := len(arrived(t, sink, true)); tries != deaths || deaths < attempts || deaths > attempts+3 {
		t.Errorf("the processes died %d times, of %d tries; %d attempts are allowed", deaths, tries, attempts)
	}
	last := make(map[string]string)
	for _, line := range arrived(t, sink, false) {
		key, payload, _ := strings.Cut(line, " ")
		if key != "" && payload < last[key] {
			t.Errorf("key %s: %s arrived after %s", key, payload, last[key])
		}
		last[key] = payload
	}
}

// arrived are the first deliveries in order, or all those of the poison.
func arrived(t *testing.T, sink string, poison bool) (got []string) {
	t.Helper()
	text, err := os.ReadFile(sink)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasSuffix(line, " poison") == poison && (poison || !seen[line]) {
			seen[line] = true
			got = append(got, line)
		}
	}
	return got
}

// liveUntil runs relays, one after the other, until all is done, and returns how
// many died of the poison.
func liveUntil(t *testing.T, where, sink string, done func() bool) (deaths int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		cmd := exec.Command(exe)
		cmd.Env = append(slices.Clone(os.Environ()), envStore+"="+where, envSink+"="+sink)
		var said strings.Builder
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		died, err := watch(cmd, ended, end, done)
		switch {
		case died && cmd.ProcessState.ExitCode() == poisoned:
			deaths++
		case died || err != nil:
			t.Fatalf("the relay ended with %v:\n%s", err, said.String())
		default:
			return deaths
		}
	}
	t.Fatalf("after %d deaths it is not over", deaths)
	return 0
}

// watch waits until the process has ended, or all is done: then it stops it.
func watch(cmd *exec.Cmd, ended <-chan error, end time.Time, done func() bool) (died bool, err error) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			return true, err
		case <-look.C:
		}
		if late := time.Now().After(end); late || done() {
			err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), <-ended)
			if late {
				err = errors.New("it is not over in time")
			}
			return false, err
		}
	}
}
