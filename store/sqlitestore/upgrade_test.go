package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlitestore"
)

// additive is a migration such as the next version may have.
const additive = `-- postrider:compatible_from 1
ALTER TABLE postrider_cursor ADD COLUMN note TEXT NOT NULL DEFAULT '';
ALTER TABLE postrider_member ADD COLUMN version INTEGER;
CREATE TABLE postrider_later (id INTEGER PRIMARY KEY) STRICT;
`

const additivePerShard = "ALTER TABLE postrider_log_{shard} ADD COLUMN trace TEXT NOT NULL DEFAULT '';\n"

// next is the migrations of a version after this one.
func next(t *testing.T, text string) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(sqlitestore.Migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	number := 1
	for _, name := range names {
		data, err := fs.ReadFile(sqlitestore.Migrations, name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: data}
		if !strings.HasSuffix(name, ".shard.sql") {
			number++
		}
	}
	name := fmt.Sprintf("migrations/%04d_next", number)
	files[name+".sql"] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(text, "{next}", strconv.Itoa(number)))}
	files[name+".shard.sql"] = &fstest.MapFile{Data: []byte(additivePerShard)}
	return files
}

// counting publishes nothing and counts.
type counting struct{ n atomic.Int64 }

func (c *counting) Publish(_ context.Context, msgs []outbox.Message) []outbox.Result {
	c.n.Add(int64(len(msgs)))
	return make([]outbox.Result, len(msgs))
}

// traffic is a producer and a relay of this version on one file.
type traffic struct {
	store     *sqlitestore.Store
	relay     *relay.Relay
	sink      counting
	committed atomic.Int64
}

func startTraffic(t *testing.T) *traffic {
	t.Helper()
	tr := &traffic{store: open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{})}
	var err error
	tr.relay, err = relay.New(relay.Config{
		Store: tr.store, Lease: time.Second, Logger: slog.New(slog.DiscardHandler),
		Routes: []relay.Route{{Name: "route", Topics: []string{"**"}, Publisher: &tr.sink}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = tr.relay.Run(ctx) }) // what it left unsettled is not the subject
	running.Go(func() {
		w := outbox.NewWriter(sqlitestore.SQL{})
		whole := context.WithoutCancel(ctx)
		for n := 0; ctx.Err() == nil; n++ {
			tx, err := tr.store.DB().BeginTx(whole, nil)
			if err == nil {
				err = errors.Join(w.Enqueue(whole, tx, outbox.Message{Topic: "t", Key: fmt.Sprint(n % 7)}), tx.Commit())
			}
			if err != nil {
				t.Errorf("the producer: %v", err)
				return
			}
			tr.committed.Add(1)
			time.Sleep(2 * time.Millisecond)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	tr.more(t, "messages flow")
	return tr
}

// more waits until messages that are committed from now on are published.
func (tr *traffic) more(t *testing.T, what string) {
	t.Helper()
	want := tr.committed.Load() + 10
	await(t, what, func() bool { return tr.sink.n.Load() >= want })
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) || t.Failed() {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// other opens the store's file once more.
func other(t *testing.T, s *sqlitestore.Store) *sql.DB {
	t.Helper()
	var path string
	if err := s.DB().QueryRow(`SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&path); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", sqlitestore.DSN(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestUpgradeWhileProgramsOfTheVersionBeforeRun(t *testing.T) {
	tr := startTraffic(t)
	db := other(t, tr.store)
	before := schema(t, db)
	broken := next(t, additive+"SELECT no_such_function();\n")
	if err := sqlitestore.MigrateWith(t.Context(), broken, db, sqlitestore.Options{}); err == nil {
		t.Error("a migration that fails in its middle succeeded")
	}
	if diff := cmp.Diff(before, schema(t, db)); diff != "" {
		t.Errorf("it left something behind:\n%s", diff)
	}
	for range 2 {
		if err := sqlitestore.MigrateWith(t.Context(), next(t, additive), db, sqlitestore.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	tr.more(t, "programs of this version go on")
	v, err := sqlitestore.Status(t.Context(), db)
	if err != nil || v.Have != v.Known+1 || v.CompatibleFrom > v.Known || v.Usable() != nil {
		t.Errorf("as this version sees it: %+v, %v", v, err)
	}
	if err := sqlitestore.Migrate(t.Context(), db, sqlitestore.Options{}); err != nil {
		t.Errorf("this version's own migrate: %v", err)
	}
	if members, err := sqlitestore.Members(t.Context(), db); err != nil || len(members) != 1 || len(members[0].Routes) != 1 {
		t.Errorf("at work: %+v, %v", members, err)
	}
	tr.more(t, "programs of this version go on after that")
}

func TestUpgradeThatLeavesThisVersionOut(t *testing.T) {
	tr := startTraffic(t)
	db := other(t, tr.store)
	text := strings.Replace(additive, "compatible_from 1", "compatible_from {next}", 1)
	if err := sqlitestore.MigrateWith(t.Context(), next(t, text), db, sqlitestore.Options{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the relay stands still and says why", func() bool {
		for _, route := range tr.relay.Stats().Routes {
			for _, shard := range route.ShardsFailing {
				if strings.Contains(shard.Error, "later version") {
					return true
				}
			}
		}
		return false
	})
	committed := tr.committed.Load()
	await(t, "the producer goes on", func() bool { return tr.committed.Load() > committed+10 })
	if members, err := sqlitestore.Members(t.Context(), db); err != nil || len(members) > 0 {
		t.Errorf("at work: %+v, %v", members, err)
	}
	if _, err := tr.store.Look(t.Context(), relay.Member{Owner: "late"}, time.Minute); !errors.Is(err, sqlitestore.ErrNewer) {
		t.Errorf("joining: %v", err)
	}
	if err := sqlitestore.Migrate(t.Context(), db, sqlitestore.Options{}); !errors.Is(err, sqlitestore.ErrNewer) {
		t.Errorf("migrating: %v", err)
	}
	if _, err := sqlitestore.NewAdmin(db).Layout(t.Context()); !errors.Is(err, sqlitestore.ErrNewer) {
		t.Errorf("an operator's program: %v", err)
	}
}

func TestMigrationsThatAreNone(t *testing.T) {
	for name, files := range map[string]fstest.MapFS{
		"a gap":            {"migrations/0002_x.sql": {Data: []byte("-- postrider:compatible_from 1\n")}},
		"it does not say":  {"migrations/0001_x.sql": {Data: []byte("SELECT 1;\n")}},
		"it says too much": {"migrations/0001_x.sql": {Data: []byte("-- postrider:compatible_from 2\n")}},
	} {
		if err := sqlitestore.MigrateWith(t.Context(), files, database(t), sqlitestore.Options{}); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}
