package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
)

// additive is a migration such as the next version may have: it alters every
// table that programs of this version use.
const additive = `-- postrider:compatible_from 1
-- postrider:locks log cursor parked member
{{range .Shards}}ALTER TABLE {{$.Schema}}.log_{{.}} ADD COLUMN trace text NOT NULL DEFAULT '';
{{end}}ALTER TABLE {{.Schema}}.cursor ADD COLUMN note text NOT NULL DEFAULT '';
ALTER TABLE {{.Schema}}.parked ADD COLUMN trace text NOT NULL DEFAULT '';
ALTER TABLE {{.Schema}}.member ADD COLUMN version integer;
CREATE TABLE {{.Schema}}.later (id bigint PRIMARY KEY);
`

// next is the migrations of a version after this one.
func next(t *testing.T, text string) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(pgstore.Migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := fs.ReadFile(pgstore.Migrations, name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: data}
	}
	text = strings.ReplaceAll(text, "{next}", strconv.Itoa(len(names)+1))
	files[fmt.Sprintf("migrations/%04d_next.sql", len(names)+1)] = &fstest.MapFile{Data: []byte(text)}
	return files
}

// shape is what the schema has.
func shape(t *testing.T, db pgstore.DB) (text string) {
	t.Helper()
	err := db.QueryRow(t.Context(), `SELECT (SELECT string_agg(format('%s.%s', table_name, column_name), ' ' ORDER BY table_name, ordinal_position)
			FROM information_schema.columns WHERE table_schema = 'postrider') || (SELECT string_agg(name || '=' || value, ' ' ORDER BY name) FROM postrider.meta)`).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Relays and applications of this version go on while a later version migrates
// the tables, and afterwards.
func TestUpgradeWhileProgramsOfTheVersionBeforeRun(t *testing.T) {
	tr := startTraffic(t)
	files := next(t, additive)
	applied, err := pgstore.MigrateWith(t.Context(), files, tr.pool, pgstore.Options{Timeout: time.Minute})
	if err != nil || len(applied) != 1 {
		t.Fatalf("%v, %v", applied, err)
	}
	status, err := pgstore.ReadStatus(t.Context(), tr.pool, "")
	if err != nil || status.Version != status.Known+1 || status.CompatibleFrom > status.Known || len(status.Pending) > 0 {
		t.Errorf("as this version sees it: %+v, %v", status, err)
	}
	if applied, err := pgstore.Migrate(t.Context(), tr.pool, pgstore.Options{}); err != nil || len(applied) > 0 {
		t.Errorf("this version's own migrate: %v, %v", applied, err)
	}
	tr.more("producers go on after it")
	if _, err := pgstore.NewAdmin(tr.pool, "").Layout(t.Context()); err != nil {
		t.Errorf("an operator's program of this version: %v", err)
	}
	tr.end()
	if text := tr.logs.String(); strings.Contains(text, "later version") {
		t.Errorf("a relay says\n%s", text)
	}
}

// A migration that is killed leaves nothing behind, and nobody notices.
func TestUpgradeIsKilledInTheMiddle(t *testing.T) {
	tr := startTraffic(t)
	before := shape(t, tr.pool)
	slow := next(t, strings.Replace(additive, "ALTER TABLE {{.Schema}}.member", "SELECT 'half done' FROM pg_sleep(60);\nALTER TABLE {{.Schema}}.member", 1))
	for name, kill := range map[string]func(cancel context.CancelFunc){
		"the client goes away": func(cancel context.CancelFunc) { cancel() },
		"the server ends it": func(context.CancelFunc) {
			exec(t, tr.pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := make(chan error, 1)
			go func() {
				_, err := pgstore.MigrateWith(ctx, slow, tr.pool, pgstore.Options{Timeout: time.Minute})
				result <- err
			}()
			await(t, "the migration is in its middle", func() bool {
				var n int
				err := tr.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()`).Scan(&n)
				return err == nil && n == 1
			})
			kill(cancel)
			if err := <-result; err == nil {
				t.Fatal("it succeeded")
			}
			await(t, "the server has rolled it back", func() bool { return shape(t, tr.pool) == before })
			tr.more("producers go on")
		})
	}
	if _, err := pgstore.MigrateWith(t.Context(), next(t, additive), tr.pool, pgstore.Options{Timeout: time.Minute}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	tr.end()
}

// A long transaction holds a migration up and nobody else: each attempt gives
// way, and says to whom.
func TestUpgradeWaitsForALongTransaction(t *testing.T) {
	tr := startTraffic(t)
	config := tr.pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = "night report"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	tx, err := conn.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), `SELECT count(*) FROM postrider.log_3`)
	}
	if err != nil {
		t.Fatal(err)
	}
	before, files := shape(t, tr.pool), next(t, additive)
	pid := fmt.Sprintf("pid %d", conn.PgConn().PID())

	_, err = pgstore.MigrateWith(t.Context(), files, tr.pool, pgstore.Options{Timeout: time.Millisecond})
	if !errors.Is(err, pgstore.ErrLocked) || !strings.Contains(err.Error(), pid) {
		t.Errorf("without time to wait: %v, want it to name %s", err, pid)
	}
	if diff := cmp.Diff(before, shape(t, tr.pool)); diff != "" {
		t.Errorf("the time-out left something behind:\n%s", diff)
	}

	waits := 0
	applied, err := pgstore.MigrateWith(t.Context(), files, tr.pool, pgstore.Options{Timeout: time.Minute, Waiting: func(w pgstore.Wait) {
		if len(w.Holders) == 0 || w.Holders[0].Application != "night report" || w.Holders[0].Since.IsZero() || w.Left <= 0 {
			t.Errorf("waiting: %+v", w)
		}
		if text := w.HeldBy(); !strings.Contains(text, pid) || !strings.Contains(text, `"night report"`) || !strings.Contains(text, "since 20") {
			t.Errorf("waiting: %s", text)
		}
		tr.more("producers go on between two attempts")
		if waits++; waits == testsize.Pick(2, 5) {
			if err := tx.Rollback(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}})
	if err != nil || len(applied) != 1 || waits < 2 {
		t.Errorf("applied %v after %d waits, %v", applied, waits, err)
	}
	tr.end()
}

// A prepared transaction, which no process has, is named too.
func TestUpgradeNamesAPreparedTransaction(t *testing.T) {
	pool := migrated(t, pgstore.Options{})
	name := "order " + time.Now().Format(time.RFC3339Nano)
	exec(t, pool, `BEGIN; SELECT postrider.enqueue('t', ''); PREPARE TRANSACTION '`+name+`'`, pgx.QueryExecModeSimpleProtocol)
	unnamed := strings.Replace(additive, "-- postrider:locks", "-- ", 1) // a lock that only its statement asks for
	for _, text := range []string{additive, unnamed} {
		_, err := pgstore.MigrateWith(t.Context(), next(t, text), pool, pgstore.Options{Timeout: time.Millisecond})
		if !errors.Is(err, pgstore.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("prepared transaction %q", name)) {
			t.Error(err)
		}
	}
	exec(t, pool, `ROLLBACK PREPARED '`+name+`'`)
}

// Where the tables are not for this version any more, its relays stop, and are
// off the roster, so that those of the later version have all shards. An
// application goes on.
func TestUpgradeThatLeavesThisVersionOut(t *testing.T) {
	tr := startTraffic(t)
	text := strings.Replace(additive, "compatible_from 1", "compatible_from {next}", 1)
	if _, err := pgstore.MigrateWith(t.Context(), next(t, text), tr.pool, pgstore.Options{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	await(t, "both relays stand still and say why", func() bool {
		for _, r := range tr.relays {
			for _, route := range r.Stats().Routes {
				if len(route.ShardsFailing) == 0 {
					return false
				}
				for _, shard := range route.ShardsFailing {
					if !strings.Contains(shard.Error, "later version") {
						return false
					}
				}
			}
		}
		return true
	})
	await(t, "what was in hand is done", func() bool {
		before := tr.published()
		time.Sleep(200 * time.Millisecond)
		return tr.published() == before
	})
	published := tr.published()
	tr.more("producers go on")
	tr.enough()
	tr.writers.Wait()
	if n := tr.published(); n != published {
		t.Errorf("%d more were published", n-published)
	}
	for _, r := range []string{"member", "mark"} {
		var n int
		if err := tr.pool.QueryRow(t.Context(), `SELECT count(*) FROM postrider.`+r).Scan(&n); err != nil || n > 0 {
			t.Errorf("%d rows in %s, %v", n, r, err)
		}
	}
	if _, err := pgstore.Look(t.Context(), tr.pool, "", relay.Member{Owner: "late"}, time.Minute); !errors.Is(err, pgstore.ErrNewerSchema) {
		t.Errorf("joining: %v", err)
	}
	store, err := poll.New(poll.Config{Pool: tr.pool})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Shards(t.Context()); !errors.Is(err, pgstore.ErrNewerSchema) {
		t.Errorf("starting: %v", err)
	}
	if _, err := pgstore.Migrate(t.Context(), tr.pool, pgstore.Options{}); !errors.Is(err, pgstore.ErrNewerSchema) {
		t.Errorf("migrating: %v", err)
	}
	// The later version takes over. Its relay does what this one's does here.
	exec(t, tr.pool, `UPDATE postrider.meta SET value = '1' WHERE name = 'compatible_from'`)
	await(t, "relays that know the tables go on", func() bool { return tr.published() > published })
	tr.end()
}
